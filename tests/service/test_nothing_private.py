"""What a pair tells its clients, with and without errors, holds no path, host or process of where it runs.

Metrics are for whoever runs it: they name the instances, and want a token where tokens are asked for.
"""

import getpass
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import httpx

from draft_service.config import DraftConfig
from specpair.options import Drafter
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import draft_service_pb2, sequence_service_pb2, target_service_pb2
from tests.services import RunningPair, engine_config, running_pair
from tests.tiny_models import make_model

TIMEOUT = 60.0
GETS = [
    "/",
    "/health",
    "/openapi.json",
    "/version",
    "/v1/models",
    "/v1/models/x",
    "/v1/models/../../etc/passwd",
    "/..%2f",
]
BODIES: list[Any] = [
    {"prompt": [1, 2], "max_tokens": 2},
    {"prompt": [1, 2], "max_tokens": 2, "model": "/etc/passwd"},
    {"prompt": [1, 2], "max_tokens": 2, "model": "../target"},
    {"prompt": "no tokenizer"},
    {"prompt": [10**6]},
    {"prompt": [1] * 4000},
    {"prompt": [1], "drafter": "unigram"},
    {"prompt": [1], "logit_bias": {"x": 1}},
    {"prompt": {"a": 1}},
    [],
]


async def test_no_answer_says_where_the_services_run(tmp_path: Path) -> None:
    home = tmp_path / "a-private-folder"
    home.mkdir()
    target = engine_config(make_model(home / "model"))
    async with running_pair(target, DraftConfig(drafter=Drafter.NGRAM), target_timeout=0.3) as pair:
        said = [words async for words in everything(pair, of_models(pair))]
        assert len(said) > 25
        await pair.target.stop()
        said += [words async for words in everything(pair, [])]  # its own client would be told where it was
    private = ["a-private-folder", str(tmp_path), "site-packages", str(Path(__file__).parents[2]), "Traceback"]
    private += [socket.gethostname(), f"pid={os.getpid()}", pair.target.address, pair.target.address.split(":")[1]]
    private += [f"{getpass.getuser()}@", "/root/", "/home/"]
    assert {
        words[max(words.index(word) - 80, 0) :][:200] for words in said for word in private if word in words
    } == set()


async def everything(pair: RunningPair, calls: list[Any]) -> AsyncIterator[str]:
    """All that a client of HTTP or gRPC gets to read, of these calls as well."""
    async with httpx.AsyncClient(base_url=f"http://{pair.http_address}", timeout=30) as client:
        for path in GETS:
            yield shown(await client.get(path))
        for body in BODIES:
            yield shown(await client.post("/v1/completions", json=body))
        yield shown(await client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}]}))
        yield shown(await client.post("/v1/responses", json={"input": "x"}))
        yield shown(await client.post("/v1/completions", content=b"{", headers={"content-type": "application/json"}))
    for call in (*of_coordinator(pair), *calls):
        try:
            yield str(await call)
        except grpc.aio.AioRpcError as error:
            yield f"{error.details()} {error.trailing_metadata()}"


def of_coordinator(pair: RunningPair) -> list[Any]:
    described = pair.coordinator.GetPairInfo(pb.GetPairInfoRequest(), timeout=TIMEOUT)
    return [described, pair.generate([10**6], 2), pair.generate([1] * 4000, 2), pair.generate([1, 2], 2)]


def of_models(pair: RunningPair) -> list[Any]:
    assert pair.draft is not None
    sequences, missing = sequence_service_pb2, "no-such-sequence"
    calls = [pair.draft.hot.ProposeTokens(draft_service_pb2.ProposeTokensRequest(sequence_id=missing))]
    calls.append(pair.target.hot.VerifyProposal(target_service_pb2.VerifyProposalRequest(sequence_id=missing)))
    for model in (pair.draft, pair.target):
        stub = model.sequences
        calls += [
            stub.GetModelInfo(sequences.GetModelInfoRequest(), timeout=TIMEOUT),
            stub.OpenSequence(sequences.OpenSequenceRequest(), timeout=TIMEOUT),
            stub.RollbackSequence(sequences.RollbackSequenceRequest(sequence_id=missing), timeout=TIMEOUT),
            stub.ForkSequence(sequences.ForkSequenceRequest(sequence_id=missing), timeout=TIMEOUT),
        ]
    return calls


def shown(answer: httpx.Response) -> str:
    headers = {name: value for name, value in answer.headers.items() if name != "x-request-id"}
    return f"{answer.status_code} {headers} {answer.text}"
