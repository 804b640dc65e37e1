"""vLLM's server from the client's side: `/v1/completions` with token ids, streamed and timed at the client."""

import json
import time
from collections.abc import AsyncIterable
from typing import Any

import httpx

from bench.case import Case
from bench.received import Received
from command.failures import CommandError

PATH = "/v1/completions"


def request_for(case: Case, prompt: list[int], max_tokens: int, seed: int) -> dict[str, Any]:
    """The body: plain sampling at the temperature, and the tokens' ids with the answer."""
    return {
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": case.temperature,
        "top_k": 0,
        "top_p": 1.0,
        "seed": seed,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
    }


async def complete(client: httpx.AsyncClient, body: dict[str, Any]) -> Received:
    """Raises CommandError if the server refuses or breaks off."""
    try:
        async with client.stream("POST", PATH, json=body) as response:
            if response.is_error:
                raise CommandError(f"vLLM answered {response.status_code}: {(await response.aread()).decode()}")
            return await read_completion(response.aiter_lines())
    except httpx.HTTPError as error:
        raise CommandError(f"the connection to vLLM broke: {error!r}") from error


async def read_completion(lines: AsyncIterable[str]) -> Received:
    """Reads server-sent events, timed as they arrive. Raises CommandError if they end early or tell of an error."""
    token_ids: list[int] = []
    arrivals: list[float] = []
    first_count = 0
    async for line in lines:
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return Received(token_ids=token_ids, count=len(token_ids), first_count=first_count, arrivals=arrivals)
        event = json.loads(data)
        if "error" in event:
            raise CommandError(f"vLLM failed: {event['error']}")
        if found := [token for choice in event["choices"] for token in choice.get("token_ids") or ()]:
            arrivals.append(time.perf_counter())
            token_ids += found
            first_count = first_count or len(found)
    raise CommandError("vLLM ended its answer early")
