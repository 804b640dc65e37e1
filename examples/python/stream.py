"""Streams a completion and prints its acceptance: python stream.py [PROMPT] [HOST:PORT]

Needs only the .proto files and `pip install grpcio grpcio-tools`.
"""

import sys
from pathlib import Path

import grpc

sys.path.append(str(Path(__file__).parents[2] / "proto"))  # where gRPC looks for .proto files
pb, services = grpc.protos_and_services("specpair/v1/coordinator_service.proto")

prompt = sys.argv[1] if len(sys.argv) > 1 else "def read_lines(path):"
address = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:50050"
request = pb.GenerateTokensRequest(text=prompt, max_tokens=64, num_speculative_tokens=4, sampling={"temperature": 0.7})

with grpc.insecure_channel(address) as channel:
    try:
        for response in services.CoordinatorServiceStub(channel).GenerateTokens(request):
            print(response.text, end="", flush=True)
            if response.HasField("summary"):
                found = response.summary.speculation
                counts = f"{found.accepted_token_count} of {found.draft_token_count}"
                print(f"\nacceptance rate {found.acceptance_rate:.1%} ({counts})", file=sys.stderr)
                print(f"{found.tokens_per_round:.2f} tokens per round", file=sys.stderr)
    except grpc.RpcError as error:
        sys.exit(f"{error.code().name}: {error.details()}")
