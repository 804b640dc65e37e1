"""One trace over client, coordinator, draft and target, by the SDK's in-memory exporter."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import grpc.aio
import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from draft_service.host import DraftHost
from specpair.client.channel import proposal_caller
from specpair.engine_config import pace_of
from specpair.tracing import (
    MAX_TRACE_CONTEXT_LENGTH,
    continued,
    current_trace_id,
    span,
    trace_context,
    trace_metadata,
    tracing,
)
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import draft_service_pb2, target_service_pb2
from tests.service.ahead_caller import ORDER, ahead_caller, close_sequence, open_sequence
from tests.services import RunningPair, engine_config, running_draft, running_pair
from tests.tiny_models import make_model

PROMPT = [5, 2, 7, 2, 11]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Target and draft."""
    folder = tmp_path_factory.mktemp("models")
    return make_model(folder / "target", seed=1, vocab_size=24), make_model(folder / "draft", seed=2, vocab_size=24)


@pytest.fixture(scope="module")
async def pair(models: tuple[Path, Path]) -> AsyncIterator[RunningPair]:
    target, draft = models
    async with running_pair(engine_config(target), engine_config(draft)) as pair:
        yield pair


@pytest.fixture
async def slow_pair(models: tuple[Path, Path]) -> AsyncIterator[RunningPair]:
    """The draft is ahead of such a target, and guesses what it will say."""
    target, _ = models
    async with running_pair(engine_config(target, pace=pace_of("10")), engine_config(target)) as pair:
        yield pair


class Kept(InMemorySpanExporter):
    """Keeps the spans beyond the shutdown, which sends the last of them."""

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        return super().export(spans)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]


@pytest.fixture
def exporter() -> Kept:
    return Kept()


async def request(pair: RunningPair, **fields: object) -> pb.GenerationSummary:
    message = pb.GenerateTokensRequest(token_ids=pb.TokenIds(ids=PROMPT), max_tokens=16, num_speculative_tokens=3)
    message.ignore_eos = True
    for name, value in fields.items():
        setattr(message, name, value)
    call = pair.coordinator.GenerateTokens(message, metadata=trace_metadata())
    return [response async for response in call][-1].summary


def trace_of(one: ReadableSpan) -> int:
    assert one.context is not None
    return one.context.trace_id


def parent_of(span: ReadableSpan, spans: Sequence[ReadableSpan]) -> ReadableSpan:
    assert span.parent is not None
    (parent,) = [other for other in spans if other.context and other.context.span_id == span.parent.span_id]
    return parent


def values(spans: Sequence[ReadableSpan], name: str) -> Iterator[int]:
    for one in spans:
        assert one.attributes is not None
        value = one.attributes[f"specpair.{name}"]
        assert isinstance(value, int)
        yield value


async def test_a_request_is_one_trace_over_all_processes(pair: RunningPair, exporter: Kept) -> None:
    with tracing("test", exporter), span("generate", "client"):
        summary = await request(pair, work_ahead=pb.WORK_AHEAD_MODE_OFF)
    (client,), (served,) = exporter.named("generate"), exporter.named("request")
    rounds, proposals, verdicts = (exporter.named(name) for name in ("round", "propose", "verify"))
    assert {trace_of(one) for one in exporter.spans} == {trace_of(client)}
    assert client.parent is None and parent_of(served, exporter.spans) is client
    assert all(parent_of(one, exporter.spans) is served for one in rounds)
    assert all(parent_of(one, exporter.spans).name == "round" for one in (*proposals, *verdicts))
    speculation = summary.speculation
    assert len(verdicts) == len(rounds) == speculation.round_count + 1, "the first token has a round, too"
    assert len(proposals) == speculation.draft_round_count
    for name, count in (("proposed", speculation.draft_token_count), ("accepted", speculation.accepted_token_count)):
        assert sum(values(rounds, name)) == sum(values(verdicts, name)) == sum(values([served], name)) == count
    assert sum(values(rounds, "tokens")) == sum(values([served], "completion_tokens")) == 16
    assert sum(values(verdicts, "tokens")) >= 16, "the last round may give more than the output takes"
    assert sum(values(proposals, "proposed")) == speculation.draft_token_count
    assert max(values(proposals, "k")) == 3 and min(values(verdicts, "batch_tokens")) >= 1
    sequences = {str((one.attributes or {})["specpair.sequence"]) for one in (*rounds, *proposals, *verdicts)}
    assert len(sequences) == 1


async def test_a_run_says_its_tokens_and_passes(models: tuple[Path, Path], exporter: Kept) -> None:
    """Without them a run would look like one long pass that gave a token."""
    target, _ = models
    async with running_pair(engine_config(target), stream_interval=1.0) as pair:
        with tracing("test", exporter):
            summary = await request(pair, num_speculative_tokens=0)
    rounds, verdicts = exporter.named("round"), exporter.named("verify")
    runs = [one for one in rounds if "specpair.passes" in (one.attributes or {})]
    assert runs and len(rounds) < 16
    assert list(values(runs, "passes")) == list(values(runs, "tokens")), "each pass gave a token"
    assert sum(values(rounds, "tokens")) == 16
    singles = len(rounds) - len(runs)
    assert sum(values(runs, "passes")) + singles - 1 == summary.speculation.round_count
    assert sum(values(verdicts, "tokens")) == 16
    assert sorted(values([one for one in verdicts if "specpair.passes" in (one.attributes or {})], "passes")) == sorted(
        values(runs, "passes")
    )


async def test_a_beam_search_is_one_trace(pair: RunningPair, exporter: Kept) -> None:
    with tracing("test", exporter), span("generate", "client"):
        await request(pair, num_beams=3, num_speculative_tokens=2)
    assert len({trace_of(one) for one in exporter.spans}) == 1
    passes, scores, grown = (exporter.named(name) for name in ("beam pass", "score tree", "grow beams"))
    assert len(scores) >= len(passes) and grown
    assert {parent_of(one, exporter.spans).name for one in passes} == {"request"}
    assert {parent_of(one, exporter.spans).name for one in (*scores, *grown)} == {"beam pass"}


@pytest.mark.parametrize("service", ["draft", "target"])
async def test_a_unary_call_belongs_to_the_trace_in_its_metadata(
    pair: RunningPair, exporter: Kept, service: str
) -> None:
    assert pair.draft is not None
    model, name = (pair.draft, "propose") if service == "draft" else (pair.target, "verify")
    await open_sequence(model, "unary", PROMPT, sampling={"seed": 1})
    stub, asked = model.hot, {"sequence_id": "unary", "step": 1, "base_length": len(PROMPT)}
    with tracing("test", exporter), span("round"):
        if service == "draft":
            message = draft_service_pb2.ProposeTokensRequest(num_speculative_tokens=1, **asked)
            await stub.ProposeTokens(message, metadata=trace_metadata())
        else:
            await stub.VerifyProposal(target_service_pb2.VerifyProposalRequest(**asked), metadata=trace_metadata())
    await close_sequence(model, "unary")
    (made,) = exporter.named(name)
    assert parent_of(made, exporter.spans).name == "round"


async def test_a_request_over_http_belongs_to_the_trace_in_its_header(pair: RunningPair, exporter: Kept) -> None:
    body = {"model": "target", "prompt": [PROMPT, PROMPT], "max_tokens": 4, "ignore_eos": True}
    header = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    with tracing("test", exporter):
        async with httpx.AsyncClient(base_url=f"http://{pair.http_address}") as client:
            answer = await client.post("/v1/completions", json=body, headers=header)
    assert answer.status_code == 200, answer.text
    assert {trace_of(one) for one in exporter.spans} == {int("a" * 32, 16)}
    assert len(exporter.named("request")) == 2
    assert all(one.parent and one.parent.span_id == int("b" * 16, 16) for one in exporter.named("request"))


@pytest.mark.parametrize("mode", [pb.WORK_AHEAD_MODE_OFF, pb.WORK_AHEAD_MODE_ON])
async def test_requests_that_share_messages_have_traces_of_their_own(
    slow_pair: RunningPair, exporter: Kept, mode: pb.WorkAheadMode
) -> None:
    """Also where calls are made because a message came, which may concern several requests."""
    with tracing("test", exporter):
        await asyncio.gather(*(request(slow_pair, work_ahead=mode) for _ in range(4)))
    begun = [one for one in exporter.named("verify") if (one.attributes or {}).get("specpair.was_begun")]
    assert bool(begun) == (mode == pb.WORK_AHEAD_MODE_ON)
    assert len({trace_of(one) for one in exporter.named("request")}) == 4
    for one in (*exporter.named("propose"), *exporter.named("verify")):
        around = parent_of(one, exporter.spans)
        assert around.attributes is not None and one.attributes is not None
        assert trace_of(around) == trace_of(one)
        assert around.attributes["specpair.sequence"] == one.attributes["specpair.sequence"]


async def test_a_request_that_fails_says_why(pair: RunningPair, exporter: Kept) -> None:
    with tracing("test", exporter), pytest.raises(grpc.aio.AioRpcError):
        await request(pair, n=10**6)
    (served,) = exporter.named("request")
    assert not served.status.is_ok and served.status.description == "INVALID_FIELD"


async def test_nothing_is_made_while_it_is_off(pair: RunningPair, exporter: Kept) -> None:
    with tracing("test", exporter):
        pass
    with span("generate"):
        assert (trace_context(), trace_metadata(), current_trace_id()) == ("", (), None)
        await request(pair)
    assert exporter.spans == []


def test_the_trace_id_is_that_of_the_current_span(exporter: Kept) -> None:
    with tracing("test", exporter):
        with span("request"):
            assert current_trace_id() == trace_context().split("-")[1]
            assert len(trace_context()) == MAX_TRACE_CONTEXT_LENGTH
        assert current_trace_id() is None


def test_a_trace_that_is_not_sampled_has_no_id_to_show(exporter: Kept) -> None:
    with tracing("test", exporter), continued(f"00-{'a' * 32}-{'b' * 16}-00"), span("request"):
        assert current_trace_id() is None
    assert exporter.spans == []


@pytest.mark.parametrize("wrong", ["", "nonsense", f"00-{'0' * 32}-{'b' * 16}-01", f"01-{'a' * 32}-{'b' * 16}-01-x"])
async def test_what_is_no_traceparent_begins_a_new_trace(pair: RunningPair, exporter: Kept, wrong: str) -> None:
    with tracing("test", exporter), continued(wrong), span("propose"):
        assert trace_context().split("-")[1] != "a" * 32
    (made,) = exporter.spans
    assert made.parent is None


async def test_a_failed_call_on_a_stream_is_a_failed_span(pair: RunningPair, exporter: Kept) -> None:
    assert pair.draft is not None
    caller = proposal_caller(pair.draft.channel)
    with tracing("test", exporter), span("round"):
        missing = draft_service_pb2.ProposeTokensRequest(sequence_id="missing", step=1, num_speculative_tokens=1)
        with pytest.raises(Exception, match="not open"):
            await caller.call(missing, 10.0)
        await caller.close()
    (failed,) = exporter.named("propose")
    assert failed.status.description == "SEQUENCE_NOT_FOUND"
    assert parent_of(failed, exporter.spans).name == "round"


async def test_work_ahead_is_a_span_of_the_call_that_asked_for_it(
    pair: RunningPair, exporter: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with the next call."""
    assert pair.draft is not None
    # What is likely enough depends on how much the tests before taught the draft, and that on their times.
    monkeypatch.setattr("draft_service.ahead.row_cost.RowCost.seconds", lambda _, count, size: 0.0)
    await open_sequence(pair.draft, "ahead", PROMPT, sampling={"seed": 1})
    async with ahead_caller(pair.draft) as caller:
        with tracing("test", exporter):
            await caller.call("ahead", 0, len(PROMPT), [], work_ahead=ORDER)
            await caller.prepared("ahead", 1, ORDER["max_outcomes"])
            await caller.call("ahead", 1, len(PROMPT), [3])
    await close_sequence(pair.draft, "ahead")
    (made,) = exporter.named("propose_ahead")
    assert parent_of(made, exporter.spans).name == "propose"
    assert made.attributes is not None and made.attributes["specpair.prepared"] == ORDER["max_outcomes"]


async def test_a_call_that_waits_for_the_prompt_is_one_span(models: tuple[Path, Path], exporter: Kept) -> None:
    _, draft = models
    async with running_draft(engine_config(draft, pace=pace_of("100"))) as slow, ahead_caller(slow) as caller:
        with tracing("test", exporter):
            await open_sequence(slow, "reading", PROMPT, sampling={"seed": 1})
            assert isinstance(slow.host, DraftHost) and slow.host.is_reading("reading")
            await caller.tell("reading", 0, len(PROMPT), [], is_plain=True, work_ahead=ORDER)
            await caller.prepared("reading", 1, 1)
            await close_sequence(slow, "reading")
    (made,) = exporter.named("propose")
    assert parent_of(exporter.named("propose_ahead")[0], exporter.spans) is made
