"""Logprobs in the layouts of the two endpoints and of vLLM's prompt_logprobs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from coordinator.http.json_pieces import Rows, rows
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.logprobs_pb2 import TokenLogprobs

LOWEST = -9999.0
"""Replaces minus infinity, which JSON does not have."""

TokenText = Callable[[int], str]
"""The text of a token by itself; empty where it holds no complete character."""
TokenBytes = Callable[[int], bytes | None]
"""The bytes of a token without a text, such as a part of a character; None where nothing tells them."""


class Likely(NamedTuple):
    """A token, such as one of the likeliest."""

    id: int
    text: str
    logprob: float


def completion_logprobs(
    tokens: Sequence[pb.GeneratedToken], token_text: TokenText, offsets: Iterator[int]
) -> dict[str, Any]:
    """The layout of /v1/completions, with an offset for each token. The first token of a prompt has no logprob."""
    return {
        "tokens": rows((token_name(token.id, token.text) for token in tokens), tokens),
        "token_logprobs": rows((_logprob(token) for token in tokens), tokens),
        "top_logprobs": rows((_top_by_name(token, token_text) for token in tokens), tokens),
        "text_offset": rows(offsets, tokens),
    }


def chat_logprobs(
    tokens: Sequence[pb.GeneratedToken], token_text: TokenText, token_bytes: TokenBytes
) -> dict[str, Any]:
    """The layout of /v1/chat/completions."""
    return {"content": token_logprobs(tokens, token_text, token_bytes), "refusal": None}


def token_logprobs(
    tokens: Sequence[pb.GeneratedToken], token_text: TokenText, token_bytes: TokenBytes
) -> list[dict[str, Any]] | Rows:
    """An entry for each token, with the likeliest ones."""
    return rows((_with_likeliest(token, token_text, token_bytes) for token in tokens), tokens)


def prompt_logprobs(tokens: Sequence[pb.GeneratedToken], token_text: TokenText) -> list[dict[str, Any] | None] | Rows:
    """For each token of the prompt but the first: itself and the likeliest ones, by id; only the latter have a rank."""
    return rows((_by_id(token, token_text) if token.HasField("logprobs") else None for token in tokens), tokens)


def token_name(token_id: int, text: str) -> str:
    """A token's text; without one its id, as vLLM writes it."""
    return text or f"token_id:{token_id}"


def _top_by_name(token: pb.GeneratedToken, token_text: TokenText) -> dict[str, float] | None:
    """The likeliest tokens, and the token itself if it is none of them."""
    own_logprob = _logprob(token)
    if own_logprob is None:
        return None
    own_name, top = token_name(token.id, token.text), dict[str, float]()
    for likely in _likeliest(token.logprobs, token_text):
        # By itself the last part of a character has no text, as the token it has that of the character.
        name = own_name if likely.id == token.id else token_name(likely.id, likely.text)
        top.setdefault(name, likely.logprob)  # of two with the same text, the likelier
    return top | {own_name: own_logprob}


def _by_id(token: pb.GeneratedToken, token_text: TokenText) -> dict[str, Any]:
    own = {"logprob": max(token.logprobs.logprob, LOWEST), "rank": None, "decoded_token": token.text}
    ranked = {
        str(likely.id): {"logprob": likely.logprob, "rank": rank, "decoded_token": likely.text}
        for rank, likely in enumerate(_likeliest(token.logprobs, token_text), 1)
    }
    return {str(token.id): own, **ranked}


def _with_likeliest(token: pb.GeneratedToken, token_text: TokenText, token_bytes: TokenBytes) -> dict[str, Any]:
    top = [_chat_entry(likely, token_bytes) for likely in _likeliest(token.logprobs, token_text)]
    own = Likely(token.id, token.text, max(token.logprobs.logprob, LOWEST))
    return {**_chat_entry(own, token_bytes), "top_logprobs": top}


def _chat_entry(entry: Likely, token_bytes: TokenBytes) -> dict[str, Any]:
    """Joined, the bytes of the tokens of a text are the text."""
    data = entry.text.encode() if entry.text else token_bytes(entry.id)
    return {
        "token": token_name(entry.id, entry.text),
        "logprob": entry.logprob,
        "bytes": None if data is None else list(data),
    }


def _likeliest(entry: TokenLogprobs, token_text: TokenText) -> Iterator[Likely]:
    for token_id, logprob in zip(entry.top_token_ids, entry.top_logprobs, strict=True):
        yield Likely(token_id, token_text(token_id), max(logprob, LOWEST))


def _logprob(token: pb.GeneratedToken) -> float | None:
    return max(token.logprobs.logprob, LOWEST) if token.HasField("logprobs") else None
