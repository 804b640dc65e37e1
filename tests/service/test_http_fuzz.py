"""Requests made from the OpenAPI description, such as fit it and such as do not: no answer is a 5xx, and each is as
described."""

import asyncio
from collections import Counter
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.http_service import http_client, running_bundled_pair

EXAMPLES = 240
GENERATING = ("/v1/completions", "/v1/chat/completions", "/v1/responses")
DESCRIBED = [status_code_conformance, content_type_conformance, response_schema_conformance]
PATHS = (*GENERATING, "/tokenize", "/detokenize", "/v1/models", "/v1/models/{model}", "/health")


async def test_no_request_is_answered_with_5xx() -> None:
    """The pair has room for few tokens, so that requests for any number of them are soon served. It tells reasoning
    from answers, which then have all parts that are described."""
    async with (
        running_bundled_pair(max_model_len=32, reasoning_parser="deepseek_r1") as pair,
        http_client(pair) as client,
    ):
        description = (await client.get("/openapi.json")).json()
        statuses: Counter[tuple[str, int]] = Counter()
        await asyncio.to_thread(fuzz, description, f"http://{pair.http_address}", statuses)
        await pair.check_clean()
        assert (await client.get("/health")).status_code == 200
    for path in GENERATING:
        assert statuses[path, 200] and statuses[path, 400], f"too tame: {statuses}"


def fuzz(description: dict[str, Any], url: str, statuses: Counter[tuple[str, int]]) -> None:
    """Sends generated requests and counts the answers by path and status."""
    schema = schemathesis.openapi.from_dict(description).include(path=list(PATHS))
    cases = schema.as_strategy(generation_mode=GenerationMode.POSITIVE) | schema.as_strategy(
        generation_mode=GenerationMode.NEGATIVE
    )

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    @given(case=cases, kept=st.none() | st.sets(st.integers(0, 40), max_size=2))
    def send(case: Any, kept: set[int] | None) -> None:
        if isinstance(case.body, dict) and kept is not None:
            case.body = tamed(case.body, kept)
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            case.body["model"] = "target"  # any other is refused before the rest is looked at
        response = case.call(base_url=url)
        statuses[case.path, response.status_code] += 1
        assert response.status_code < 500, (case.method, case.path, case.body, response.text)
        case.validate_response(response, checks=DESCRIBED)

    send()


def tamed(body: dict[str, Any], kept: set[int]) -> dict[str, Any]:
    """A request that is in order but for the parameters at these places: one by one they come further than together."""
    others = {name: body[name] for place, name in enumerate(sorted(body)) if place in kept}
    prompts = {"messages": [{"role": "user", "content": "a"}], "input": "a"}
    prompt = {name: value for name, value in prompts.items() if name in body} or {"prompt": "a"}
    return {"model": "target", **prompt, **others}
