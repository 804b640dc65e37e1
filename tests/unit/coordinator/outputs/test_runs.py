"""Where nothing is proposed the target gives several tokens in one answer: the same tokens, counted as before."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.adaptive import Decision, OutputLength
from coordinator.outputs.output_part import Origin, OutputPart
from coordinator.outputs.run_length import RunLength
from coordinator.peers import OwnOrder
from coordinator.peers.answers import run_tokens
from specpair.errors import SpecpairError
from specpair.options import Rule, SamplingOptions, StructuredOutput, StructureKind
from specpair.v1.target_service_pb2 import VerifyProposalResponse
from tests.unit.coordinator.fake_language import continuation
from tests.unit.coordinator.pair_bench import AWAY, CONFIG, PROMPT, Bench, bench, collect

GATHERING = replace(CONFIG, stream_interval=1.0)
"""The fakes take no time, so that runs are as long as they may be."""


def runs_after(b: Bench, place: int = 3) -> set[int]:
    """Lengths of the runs from this call on: the first ones are single tokens, until it is known how long one takes."""
    return set(b.target.runs[place:])


async def first(parts: AsyncIterator[OutputPart], count: int) -> AsyncIterator[OutputPart]:
    for _ in range(count):
        yield await anext(parts)


@given(
    interval=st.floats(0.0, 1.0), elapsed=st.floats(1e-6, 10.0), count=st.integers(1, 64), longest=st.integers(1, 99)
)
def test_a_run_has_as_many_tokens_as_come_within_the_interval(
    interval: float, elapsed: float, count: int, longest: int
) -> None:
    run = RunLength(interval)
    assert run.decide(longest) == 1
    run.add(elapsed, count)
    length = run.decide(longest)
    assert 1 <= length <= longest
    assert length == 1 or length * elapsed / count <= interval * 1.000001
    assert length == longest or (length + 1) * elapsed / count > interval * 0.999999
    run.promised = 3
    assert [run.decide(longest), run.decide(longest)] == [min(3, longest), length]


@pytest.mark.parametrize("with_draft", [False, True])
async def test_an_output_without_proposals_comes_in_runs(with_draft: bool) -> None:
    async with bench(with_draft=with_draft, config=GATHERING, longest_run=8) as b:
        generation = await b.run(max_tokens=80, count=0)
        assert runs_after(b) == {8, (80 - 3) % 8}
        assert generation.acceptance.round_count == 79
        assert sum(b.target.runs) == 80
        assert b.target.gone_on_count == len(b.target.runs) - 1, "each call was promised with the one before it"
        assert len(b.target.opened) == 1, "and was the one that was promised"
        assert b.pair.metrics.registry.get_sample_value("specpair_spec_decode_rounds_total", {"kind": "plain"}) == 79


@pytest.mark.parametrize(
    ("interval", "longest_run", "changes"),
    [
        (0.0, 8, {}),
        (1.0, 0, {}),
        (1.0, 8, {"include_rounds": True}),
        (1.0, 8, {"structured_output": StructuredOutput(kind=StructureKind.JSON_OBJECT)}),
    ],
)
async def test_elsewhere_each_token_is_asked_for(interval: float, longest_run: int, changes: dict[str, Any]) -> None:
    async with bench(config=replace(CONFIG, stream_interval=interval), longest_run=longest_run) as b:
        await b.run(max_tokens=20, count=0, **changes)
        assert b.target.runs == [1] * 20


async def test_no_run_begins_while_other_outputs_are_to_be_forked() -> None:
    async with bench(config=GATHERING, longest_run=8) as b:
        b.target.fork_delay = 0.01
        choices = b.choices(max_tokens=24, count=0, n=3, best_of=3)
        async for _ in choices.parts():
            pass
        assert max(b.target.runs) == 8
        await b.check_closed()


async def test_what_a_token_takes_is_learnt_from_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, add = list[int](), RunLength.add

    def note(run: RunLength, elapsed: float, count: int) -> None:
        seen.append(count)
        add(run, elapsed, count)

    monkeypatch.setattr(RunLength, "add", note)
    async with bench(config=GATHERING, longest_run=8) as b:
        await b.run(max_tokens=40, count=0)
        assert seen == b.target.runs[1:]


async def test_no_run_is_longer_than_any_target_gives() -> None:
    async with bench(config=GATHERING, longest_run=8, target_count=2) as b:
        link = list(b.pair.target.links.values())[1]
        assert link.info is not None
        link.info = replace(link.info, longest_run=3)
        await b.run(max_tokens=40, count=0)
        assert max(max(target.runs, default=1) for target in b.targets) == 3


@pytest.mark.parametrize("faults", [{3: AWAY}, {2: AWAY, 3: AWAY}])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_run_is_given_once(faults: dict[int, Any], when: str) -> None:
    async with bench(config=GATHERING, longest_run=8) as b:
        setattr(b.target.faults, when, faults)
        generation = await b.run(max_tokens=60, count=0)
        assert generation.acceptance.round_count == 59


async def test_a_run_is_given_by_a_target_that_knows_none() -> None:
    """Token by token: it takes over in the middle."""
    async with bench(config=GATHERING, longest_run=8, target_count=2) as b:
        parts = b.generation(max_tokens=60, count=0).parts()
        tokens = [token async for part in first(parts, 6) for token in part.token_ids]
        used, other = sorted(b.targets, key=lambda target: -len(target.runs))
        assert max(used.runs) == 8 and not other.runs
        used.faults.before = dict.fromkeys(range(1000), AWAY)
        other.model = replace(other.model, longest_run=0)
        next(link for link in b.pair.target.links.values() if link.peer is other).info = other.model
        tokens += [token async for part in parts for token in part.token_ids]
        assert tokens == continuation(PROMPT, 60)
        assert set(other.runs) == {1}


async def test_tokens_of_a_run_have_their_logprobs_and_origins() -> None:
    async with bench(config=GATHERING, longest_run=8) as b:
        parts = await collect(b.generation(max_tokens=40, count=0, logprobs=1))
        assert {len(part.token_ids) for part in parts} >= {1, 8}
        for part in parts:
            assert part.origins == [Origin.TARGET] * len(part.token_ids)
            assert len(part.logprobs) in {0, len(part.token_ids)}
        await b.check_closed()


async def test_an_output_that_stops_in_a_run_has_no_token_after_it() -> None:
    text = continuation(PROMPT, 40)
    stop = next(token for place, token in enumerate(text) if place >= 12 and token not in text[:place])
    async with bench(config=GATHERING, longest_run=8) as b:
        generation = b.generation(max_tokens=40, count=0, sampling=SamplingOptions(stop_token_ids=(stop,)))
        await collect(generation)
        assert generation.output.token_ids == text[: text.index(stop) + 1]
        assert max(b.target.runs) == 8
        await b.check_closed()


async def test_a_promised_run_is_kept_where_proposals_begin_to_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = list[bool]()

    def choose(self: OutputLength, longest: int, *, is_ready: bool, is_due: bool) -> Decision:
        rounds.append(is_ready)
        return Decision(min(3, longest)) if is_ready and len(rounds) > 6 else Decision(0, opens_draft=not is_ready)

    monkeypatch.setattr(OutputLength, "_choose", choose)
    async with bench(config=GATHERING, longest_run=4) as b:
        await b.run(max_tokens=60, num_speculative_tokens=None, rule=Rule.COUPLED)
        assert max(b.target.runs) == 4 and b.draft.counts
        assert b.target.gone_on_count == len(b.target.promises) - b.target.promises.count(None)
        assert len(b.target.opened) == 1
        place = b.target.runs.index(4)
        assert b.target.promises[place - 1] == OwnOrder(run_length=4)


def test_more_tokens_than_were_asked_for_are_an_error() -> None:
    answer = VerifyProposalResponse(next_token_id=1, run_token_ids=[2, 3])
    assert run_tokens(answer, 3) == (2, 3)
    with pytest.raises(SpecpairError, match="gave 3 tokens; 2 were asked for"):
        run_tokens(answer, 2)
