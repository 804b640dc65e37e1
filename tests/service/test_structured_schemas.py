"""Outputs of generated JSON Schemas on the bundled pair are valid, and schemas made to harm end in a refusal."""

import asyncio
import json
from collections.abc import AsyncIterator

import grpc
import pytest

from bench.structured import is_valid
from bench.structured_schemas import schemas
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from specpair.v1 import structured_output_pb2 as so
from tests.http_service import running_bundled_pair
from tests.services import RunningPair

RULES = [sampling_pb2.ACCEPTANCE_RULE_TOKEN, sampling_pb2.ACCEPTANCE_RULE_BLOCK, sampling_pb2.ACCEPTANCE_RULE_COUPLED]
SECONDS = 60.0
"""Far above what a refusal takes, also on a busy machine."""
EXPRESSIONS = [{"type": "string", "pattern": f"(a|b)*{'ab'[i % 2]}(a|b){{{i + 5}}}"} for i in range(60)]
"""Compiled without a limit of time, their conjunction takes longer than anybody has waited."""
HOSTILE = {
    "megabytes": so.StructuredOutput(json_schema=json.dumps({"enum": ["x" * 1000] * 2000})),
    "depth": so.StructuredOutput(json_schema='{"items":' * 7000 + "{}" + "}" * 7000),
    "recursion": so.StructuredOutput(json_schema='{"$ref": "#"}'),
    "recursion among siblings": so.StructuredOutput(
        json_schema='{"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}'
    ),
    "products of unions": so.StructuredOutput(
        json_schema=json.dumps(
            {
                "allOf": [
                    {"anyOf": [{"properties": {f"p{i}{j}": {"type": "integer"}}} for j in range(4)]} for i in range(12)
                ]
            }
        )
    ),
    "another machine's schema": so.StructuredOutput(json_schema='{"$ref": "http://127.0.0.1:1/schema"}'),
    "products of expressions": so.StructuredOutput(json_schema=json.dumps({"allOf": EXPRESSIONS})),
    "an expression that is none": so.StructuredOutput(regex="(" * 30_000),
    "a rule of itself": so.StructuredOutput(grammar="start: start"),
    "choices": so.StructuredOutput(choices=so.Choices(texts=["a"] * 1025)),
}


@pytest.fixture(scope="module")
async def pair() -> AsyncIterator[RunningPair]:
    async with running_bundled_pair() as pair:
        yield pair
        await pair.check_clean()


async def texts(pair: RunningPair, asked: so.StructuredOutput, rule: int, count: int) -> list[str]:
    request = pb.GenerateTokensRequest(
        text="A JSON document:\n",
        max_tokens=600,
        n=count,
        sampling={"seed": 1},  # type: ignore[arg-type]
        rule=rule,  # type: ignore[arg-type]
        structured_output=asked,
    )
    found = [""] * count
    async for response in pair.coordinator.GenerateTokens(request):
        found[response.choice_index] += response.text
    return found


async def test_outputs_of_fifty_schemas_are_valid(pair: RunningPair) -> None:
    gate = asyncio.Semaphore(8)

    async def check(index: int, schema: dict[str, object]) -> None:
        async with gate:
            asked = so.StructuredOutput(json_schema=json.dumps(schema))
            for text in await texts(pair, asked, RULES[index % 3], 2):
                assert is_valid(schema, text), (schema, text)

    await asyncio.gather(*(check(index, schema) for index, schema in enumerate(schemas(50, is_compact=True))))


@pytest.mark.parametrize("name", HOSTILE)
async def test_what_is_made_to_harm_is_refused_and_hurts_nobody(pair: RunningPair, name: str) -> None:
    async with asyncio.timeout(SECONDS):
        other = asyncio.create_task(texts(pair, so.StructuredOutput(regex="[a-z]{30}"), RULES[0], 1))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await texts(pair, HOSTILE[name], RULES[0], 1)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "structured_output" in str(caught.value.details())
        assert len((await other)[0]) == 30


async def test_a_large_schema_that_is_in_order_is_served(pair: RunningPair) -> None:
    found = await texts(
        pair, so.StructuredOutput(json_schema=json.dumps({"enum": [f"v{i}" for i in range(5000)]})), 1, 1
    )
    assert json.loads(found[0]).startswith("v")
