"""Reports of rounds as JSON, for requests with include_rounds."""

from typing import Any

from google.protobuf.json_format import MessageToDict

from specpair.v1 import coordinator_service_pb2 as pb

CALLS = ("draft", "verify")


def round_document(response: pb.GenerateTokensResponse) -> dict[str, Any]:
    """The committed tokens, the rejected ones and the round, named as in the .proto files, with integers as numbers."""
    document: dict[str, Any] = {
        "tokens": [_token(token) for token in response.tokens],
        "rejected": [_token(token) for token in response.rejected],
    }
    if response.HasField("round"):
        document["round"] = _round(response.round)
    return document


def _token(token: pb.GeneratedToken) -> dict[str, Any]:
    return {"id": token.id, "text": token.text, "origin": pb.TokenOrigin.Name(token.origin)}


def _round(report: pb.RoundReport) -> dict[str, Any]:
    document = MessageToDict(report, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    for name in CALLS:
        if name in document:  # 64-bit numbers come as strings
            document[name] = {key: int(value) for key, value in document[name].items()}
    return document
