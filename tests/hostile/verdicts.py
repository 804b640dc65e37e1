"""The verdicts allowed for a hostile message, and what no answer may reveal. Pure.

A verdict is `CODE/REASON` for gRPC, without a reason where the status is gRPC's own, and `HTTP STATUS` for HTTP.
"""

import re

OK = "OK/"
BAD_FIELD = "INVALID_ARGUMENT/INVALID_FIELD"
BAD_DISTRIBUTION = "INVALID_ARGUMENT/INVALID_DISTRIBUTION"
BAD_GRAMMAR = "INVALID_ARGUMENT/INVALID_GRAMMAR"
TOO_LONG = "INVALID_ARGUMENT/PROMPT_TOO_LONG"
NOT_FOUND = "NOT_FOUND/SEQUENCE_NOT_FOUND"
OUT_OF_RANGE = "OUT_OF_RANGE/LENGTH_NOT_REACHED"
STALE = "ABORTED/STALE_STEP"
WRONG_BASE = "FAILED_PRECONDITION/BASE_LENGTH_MISMATCH"
OTHER_BODY = "ALREADY_EXISTS/CONFLICTING_BODY"
OTHER_VOCABULARY = "FAILED_PRECONDITION/VOCABULARY_MISMATCH"
FULL = "RESOURCE_EXHAUSTED/CAPACITY_EXHAUSTED"
NOT_SERVED = "UNIMPLEMENTED/NOT_SUPPORTED"

BAD_INPUT = frozenset({BAD_FIELD, BAD_DISTRIBUTION, BAD_GRAMMAR, TOO_LONG, NOT_SERVED})
"""Refused for its content, whatever the state of the service."""
ORDERLY = frozenset({OK, NOT_FOUND, OUT_OF_RANGE, STALE, WRONG_BASE, OTHER_BODY, OTHER_VOCABULARY, FULL, *BAD_INPUT})
"""All that bad input may get (docs/reliability.md). What a mutation leaves intact may be served."""

NO_METHOD = "UNIMPLEMENTED/"
TOO_LARGE = "RESOURCE_EXHAUSTED/"
CANCELLED = "CANCELLED/"
LATE = "DEADLINE_EXCEEDED/"
WRITE_FAILED = "CLIENT/"
"""grpc.aio's client tells no status where a call ends while it is still sending; no verdict of the server, then."""
NO_HEALTH = "NOT_FOUND/"
"""grpc.health of a service that is not there."""
LEFT = frozenset({CANCELLED, LATE, "UNAVAILABLE/PEER_UNAVAILABLE"})
"""For callers that leave, or have no time: the last is what the coordinator says just before a deadline."""

HTTP_REFUSALS = frozenset(f"HTTP {status}" for status in (400, 404, 405, 408, 413, 421, 429, 431))
HTTP_ANSWERS = HTTP_REFUSALS | {"HTTP 200"}
HTTP_CLOSED = "HTTP closed"
"""The connection ended without an answer, as for what is no HTTP."""
HTTP_OPEN = "HTTP open"
"""The server waits for more."""

_LEAKS = {
    "a path": r"(?<![\w.])/(?:root|home|tmp|usr|var|opt|work|proc|etc|srv|Users)/\w",
    "a source file": r"\b\w+\.(?:py|pyx|pxi|so|cc)\b",
    "a traceback": r"Traceback \(most recent|File \"|, line \d+",
    "a class": r"<class '|<\w+(?:\.\w+)+ object|object at 0x|\b[A-Z]\w+(?:Error|Exception|Warning)\b",
    "a module": r"\b(?:torch|numpy|asyncio|transformers|grpc\._|cygrpc|uvicorn|starlette|pydantic|pydantic_core)\.\w",
}
_LEAK_PATTERNS = {name: re.compile(pattern) for name, pattern in _LEAKS.items()}
LONGEST_REFUSAL = 4096
"""Characters of an error: it may repeat a part of what it refuses, but not all of a large request."""


def leak_in(text: str) -> str | None:
    """What an error leaks; None if nothing."""
    for name, pattern in _LEAK_PATTERNS.items():
        if found := pattern.search(text):
            return f"{name}: {found.group(0)!r}"
    return None


def complaint(verdict: str, text: str, allowed: frozenset[str]) -> str | None:
    """What is wrong with an answer to a hostile message; `text` is the whole text of a refusal."""
    if verdict == WRITE_FAILED:
        return None
    if verdict not in allowed:
        return f"{verdict} is not among {', '.join(sorted(allowed))}: {text[:300]!r}"
    if verdict in (OK, "HTTP 200"):
        return None
    if len(text) > LONGEST_REFUSAL:
        return f"{verdict} says {len(text)} characters: {text[:100]!r}..."
    leak = leak_in(text)
    return None if leak is None else f"{verdict} leaks {leak}: {text[:300]!r}"
