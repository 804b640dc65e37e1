"""A load on a real pair: all kinds of requests and ends, with what its clients and its own records say of it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.registry import CollectorRegistry

import coordinator.serving.serving
from coordinator.outputs.acceptance import Acceptance
from coordinator.outputs.choices import Choices
from coordinator.outputs.generation import Generation
from specpair.options import Drafter, Rule
from specpair.rpc.messages import drafter_to_proto, rule_to_proto
from specpair.server.metrics_text import render
from specpair.tracing import tracing
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from tests.service.test_greedy import make_similar
from tests.services import RunningPair, engine_config, running_pair
from tests.tiny_models import make_model

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PROMPTS = [[1, 2, 3], [9, 8, 7, 6, 5], [5, 6] * 6, [40]]


@dataclass
class Load:
    """What a pair did, as its clients and its own records have it."""

    pair: RunningPair
    choices: list[Choices]
    summaries: list[pb.GenerationSummary] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    texts: dict[str, str] = field(default_factory=dict)
    """Of each service, while all were up."""
    openmetrics: str = ""
    """Of the coordinator, at the same time."""

    @property
    def generations(self) -> list[Generation]:
        return [generation for choices in self.choices for generation in choices.generations]

    @property
    def acceptances(self) -> list[Acceptance]:
        return [generation.acceptance for generation in self.generations]

    def coordinator(self, name: str, **labels: str) -> float:
        """The value of one series; the sum over all that have these labels."""
        return total(self.pair.front_end.registry, name, **labels)


def total(registry: CollectorRegistry, name: str, **labels: str) -> float:
    samples = [sample for family in registry.collect() for sample in family.samples if sample.name == name]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


def request(index: int, **fields: Any) -> pb.GenerateTokensRequest:
    sampling = {"temperature": 1.0, "seed": 1000 * index, **fields.pop("sampling", {})}
    return pb.GenerateTokensRequest(
        token_ids=pb.TokenIds(ids=PROMPTS[index % len(PROMPTS)]),
        sampling=sampling_pb2.SamplingOptions(**sampling),
        **{"max_tokens": 12 + index, **fields},
    )


def requests() -> list[pb.GenerateTokensRequest]:
    """Rules, drafters, lengths, several outputs, and no speculation at all."""
    mixed = [
        request(i, rule=rule_to_proto(rule), drafter=drafter_to_proto(drafter), num_speculative_tokens=3 + i % 3)
        for i, (rule, drafter) in enumerate(
            (rule, drafter) for rule in Rule for drafter in (Drafter.MODEL, Drafter.UNIFORM, Drafter.PROMPT_LOOKUP)
        )
    ]
    others = [{"n": 2, "best_of": 3}, {"num_speculative_tokens": 0}, {"max_tokens": 1}, {"max_tokens": 60}, {"n": 2}]
    # Stops in the middle of accepted proposals: what follows belongs to no output.
    stops = {"stop_token_ids": list(range(0, 64, 2)), "min_tokens": 3}
    others += [{"max_tokens": 60, "num_speculative_tokens": 3, "work_ahead": pb.WORK_AHEAD_MODE_ON}]
    others += [{"sampling": {**stops, "temperature": heat}, "num_speculative_tokens": 5} for heat in (0.0, 0.3, 0.6)]
    return mixed + [request(20 + i, **fields) for i, fields in enumerate(others)]


async def finish(load: Load, message: pb.GenerateTokensRequest) -> None:
    async for response in load.pair.coordinator.GenerateTokens(message):
        if response.HasField("summary"):
            load.summaries.append(response.summary)
    load.outcomes["finished"] += 1


async def leave(load: Load, message: pb.GenerateTokensRequest, after: int) -> None:
    """Goes away after some answers."""
    call = load.pair.coordinator.GenerateTokens(message)
    for _ in range(after):
        await call.read()
    call.cancel()
    load.outcomes["cancelled"] += 1


async def be_refused(load: Load, message: pb.GenerateTokensRequest) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await finish(load, message)
    load.outcomes["failed"] += 1


async def run(load: Load) -> None:
    """All kinds of ends, the draft's and the target's last."""
    pair = load.pair
    long = [request(40 + i, max_tokens=200, num_speculative_tokens=2) for i in range(3)]
    await asyncio.gather(
        *(finish(load, message) for message in requests()),
        *(leave(load, message, after=2 + i) for i, message in enumerate(long)),
        be_refused(load, request(50, sampling={"temperature": -1.0})),
    )
    # One after the other, so that rounds with and without proposals are compared.
    for i, length in enumerate((None, 0, 3)):
        await finish(load, request(60 + i, max_tokens=40, num_speculative_tokens=length))
    await complete_traced(load)
    await pair.check_clean()
    assert pair.draft is not None
    load.texts["coordinator"] = (await get_metrics(pair)).text
    load.openmetrics = (await get_metrics(pair, accept="application/openmetrics-text;version=1.0.0")).text
    load.texts["draft"] = render(pair.draft.registry)[0].decode()
    load.texts["target"] = render(pair.target.registry)[0].decode()
    await pair.draft.stop()
    await finish(load, request(70, num_speculative_tokens=3))
    failing = asyncio.create_task(be_refused(load, request(71, max_tokens=230, num_speculative_tokens=0)))
    while len(load.choices[-1].generations[0].output.token_ids) < 3:
        await asyncio.sleep(0.001)
    await pair.target.stop()
    await failing
    while load.coordinator("specpair_num_requests_running"):
        await asyncio.sleep(0.01)


async def complete_traced(load: Load) -> None:
    """A request over HTTP that belongs to a trace."""
    url = f"http://{load.pair.http_address}/v1/completions"
    headers = {"traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01"}
    with tracing("test", InMemorySpanExporter()):
        async with httpx.AsyncClient() as client:
            response = await client.post(url, json={"prompt": PROMPTS[0], "max_tokens": 8}, headers=headers)
    assert response.status_code == 200
    load.outcomes["finished"] += 1


async def get_metrics(pair: RunningPair, accept: str = "*/*") -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.get(f"http://{pair.http_address}/metrics", headers={"accept": accept})


@asynccontextmanager
async def loaded_pair(folder: Path) -> AsyncIterator[Load]:
    """After the load; `folder` takes the models."""
    target = make_model(folder / "target", seed=5)
    draft = make_similar(target, folder / "draft")
    recorded: list[Choices] = []

    class Recorded(Choices):
        def __init__(self, *arguments: Any):
            super().__init__(*arguments)
            recorded.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator.serving.serving, "Choices", Recorded)
        async with running_pair(
            engine_config(target, cache="paged"), engine_config(draft), target_timeout=5.0, draft_cooldown=0.01
        ) as pair:
            load = Load(pair, recorded)
            await run(load)
            yield load
