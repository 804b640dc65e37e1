"""llama-server from the client's side: `/completion` with token ids, streamed and timed at the client."""

import json
import time
from collections.abc import AsyncIterable
from dataclasses import dataclass
from typing import Any

import httpx

from bench.case import Case
from bench.measurement import Counts
from bench.received import Received
from command.failures import CommandError

LIKELIEST = 20
"""Tokens whose probability is asked for."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """A streamed answer."""

    received: Received
    counts: Counts


def request_for(case: Case, prompt: list[int], max_tokens: int, seed: int) -> dict[str, Any]:
    """The body: plain sampling at the temperature, nothing reused from the request before."""
    sampling = {"samplers": ["top_k"], "top_k": 1} if case.temperature == 0 else {"samplers": ["temperature"]}
    return {
        "prompt": prompt,
        "n_predict": max_tokens,
        "temperature": case.temperature,
        **sampling,
        "seed": seed,
        "ignore_eos": True,
        "cache_prompt": False,
        "stream": True,
        "return_tokens": True,
    }


async def complete(client: httpx.AsyncClient, body: dict[str, Any]) -> Completion:
    """Raises CommandError if the server refuses or breaks off."""
    try:
        async with client.stream("POST", "/completion", json=body) as response:
            if response.is_error:
                raise CommandError(f"llama-server answered {response.status_code}: {(await response.aread()).decode()}")
            return await read_completion(response.aiter_lines())
    except httpx.HTTPError as error:
        raise CommandError(f"the connection to llama-server broke: {error!r}") from error


async def read_completion(lines: AsyncIterable[str]) -> Completion:
    """Reads server-sent events, timed as they arrive. Raises CommandError if they end early or tell of an error.

    Tokens that end within a character come with the event of a later one, which has only its own id.
    """
    token_ids: list[int] = []
    arrivals: list[float] = []
    first_count = 0
    async for line in lines:
        event = event_of(line)
        if event is None:
            continue
        if event["stop"]:
            count = event["tokens_predicted"]
            received = Received(token_ids=token_ids, count=count, first_count=first_count, arrivals=arrivals)
            return Completion(received=received, counts=counts_of(event["timings"], count - first_count))
        if event["tokens"]:
            arrivals.append(time.perf_counter())
            token_ids += event["tokens"]
            first_count = first_count or event["tokens_predicted"]
    raise CommandError("llama-server ended its answer early")


def event_of(line: str) -> dict[str, Any] | None:
    """The content of a line; None for a line without data. Raises CommandError for an error of the server."""
    if line.startswith("error:"):
        raise CommandError(f"llama-server failed: {line.removeprefix('error:').strip()}")
    if not line.startswith("data:"):
        return None
    event = json.loads(line.removeprefix("data:"))
    if "error" in event:
        raise CommandError(f"llama-server failed: {event['error']}")
    return event


def counts_of(timings: dict[str, Any], tokens: int) -> Counts:
    """The counts of an output with `tokens` after the first: a round gives its accepted tokens and one more."""
    accepted = timings.get("draft_n_accepted", 0)
    return Counts(rounds=tokens - accepted, drafted=timings.get("draft_n", 0), accepted=accepted)


async def log_probabilities(client: httpx.AsyncClient, prompt: list[int]) -> dict[int, float]:
    """The likeliest tokens after the prompt, with their natural logarithms of probability."""
    body = {"prompt": prompt, "n_predict": 1, "n_probs": LIKELIEST, "temperature": 0.0, "cache_prompt": False}
    answer = (await client.post("/completion", json=body)).json()
    return {entry["id"]: entry["logprob"] for entry in answer["completion_probabilities"][0]["top_logprobs"]}
