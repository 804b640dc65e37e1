"""Working ahead from the first token on: the draft prepares the first proposal while the target reads the prompt."""

from typing import Any

import pytest

from coordinator.adaptive import Decision
from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.outputs.choices import Choices
from coordinator.outputs.generation import Generation
from coordinator.outputs.output_part import OutputPart
from specpair.errors import InvalidFieldError, SequenceNotFoundError, SpecpairError
from specpair.options import SamplingOptions, WorkAhead
from tests.unit.coordinator.fake_language import continuation
from tests.unit.coordinator.pair_bench import AWAY, PROMPT, bench

ON: dict[str, Any] = {"work_ahead": WorkAhead.ON, "include_rounds": True}


async def rounds_of(generation: Generation) -> list[AheadOutcome | None]:
    """What working ahead gave each round."""
    reports = [part.report for part in await all_parts(generation)]
    return [report.ahead for report in reports if report is not None]


async def all_parts(generation: Generation) -> list[OutputPart]:
    parts = [part async for part in generation.parts()]
    assert generation.output.token_ids == continuation(PROMPT, generation.output.new_token_count)
    return parts


async def test_the_first_proposal_is_there_with_the_first_token() -> None:
    async with bench() as b:
        b.target.delay = 0.01
        first, second, *_ = await rounds_of(b.generation(20, 4, **ON))
        assert first is None and second is AheadOutcome.HIT
        assert b.draft.counts[0] == 1 and b.draft.has_proposal[0], "nothing is proposed beside the prompt"
        assert b.target.met_count >= 1, "the target had it before its verdict"


async def test_a_draft_that_reads_longer_than_the_target_is_waited_for_as_ever() -> None:
    async with bench() as b:
        b.draft.delay, b.target.delay = 0.03, 0.01
        _, second, *_ = await rounds_of(b.generation(20, 4, **ON))
        assert second in (AheadOutcome.LATE, AheadOutcome.MISS)
        assert b.draft.has_proposal[:2] == [True, False]


async def test_a_draft_that_opens_after_the_first_token_is_asked_at_once() -> None:
    async with bench() as b:
        b.draft.open_delay = 0.02
        _, second, *_ = await rounds_of(b.generation(20, 4, **ON))
        assert second is None and not b.draft.has_proposal[0] and 0 not in b.draft.told_steps


async def test_an_opening_that_fails_is_found_by_the_first_call_that_a_round_waits_for() -> None:
    failures = []
    for mode in (WorkAhead.OFF, WorkAhead.ON):
        async with bench() as b:
            b.target.delay = 0.01
            b.draft.open_faults.before = {0: AWAY}
            generation = b.generation(20, 4, work_ahead=mode)
            await all_parts(generation)
            failures.append((generation.acceptance.fallback_count, len(b.draft.opened)))
    assert failures[0] == failures[1] and failures[0][0]


@pytest.mark.parametrize("is_probe", [False, True])
async def test_the_round_of_the_prompt_is_a_plain_one_and_a_probe_is_made_in_the_next(
    is_probe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench() as b:
        proposals = b.generation(20, **{**ON, "num_speculative_tokens": None}).proposals
        proposals.begin(PROMPT, 4)
        proposals._is_opening = b.pair.draft is not None
        length = proposals._length
        assert length is not None

        def decide(longest: int) -> Decision:
            length.contribution.set_row_count(3)
            return Decision(2, is_probe=is_probe)

        monkeypatch.setattr(length, "decide", decide)
        first = proposals.first_round(0, PROMPT, 4)
        assert length.contribution.row_count == 1 and length._is_due is is_probe
        assert first.works_ahead is not is_probe
        proposals.leave(PROMPT)


@pytest.mark.parametrize("changes", [{"work_ahead": WorkAhead.OFF}, {"work_ahead": WorkAhead.AUTO}, {"count": 0}])
async def test_nothing_is_prepared_where_it_does_not_work_ahead(changes: dict[str, Any]) -> None:
    async with bench() as b:
        b.target.delay = 0.01
        await b.run(20, **{"count": 4, **ON, **changes})
        assert not any(b.draft.has_proposal)


async def test_an_output_of_one_token_asks_for_nothing() -> None:
    async with bench() as b:
        await b.run(1, 4, **ON)
        assert not b.draft.counts


async def test_adaptive_lengths_prepare_it_too_once_proposals_pay() -> None:
    async with bench() as b:
        b.target.delay = 0.01
        greedy = {**ON, "num_speculative_tokens": None, "sampling": SamplingOptions(temperature=0.0)}
        seconds = [(await rounds_of(b.generation(60, **greedy)))[1] for _ in range(6)]
        assert seconds[0] is None and seconds[-1] is AheadOutcome.HIT


@pytest.mark.parametrize(
    "error",
    [AWAY, SequenceNotFoundError("s"), InvalidFieldError("step", "is odd")],
)
async def test_if_that_fails_the_draft_is_asked_in_the_ordinary_way(error: SpecpairError) -> None:
    async with bench() as b:
        assert b.pair.draft is not None
        b.target.delay = 0.01
        b.draft.faults.before = {0: error}
        generation = b.generation(20, 4, **ON)
        _, second, *_ = await rounds_of(generation)
        assert generation.acceptance.fallback_count == 0 and second is not AheadOutcome.HIT
        (link,) = b.pair.draft.links.values()
        assert link.breaker.is_closed
        await b.check_closed()


async def test_a_draft_that_does_not_answer_is_blamed_for_the_first_call_that_a_round_waits_for() -> None:
    async with bench() as b:
        b.draft.delay = 30.0
        generation = b.generation(20, 4, **ON)
        await all_parts(generation)
        assert generation.acceptance.fallback_count >= 1
        await b.check_closed()


async def test_outputs_of_one_prompt_prepare_theirs_once_they_are_forked() -> None:
    """The first one would go on at once, and the others wait for their sequences until that call is answered."""
    async with bench() as b:
        b.draft.delay, b.target.delay = 0.005, 0.02
        await prompts_of(b.choices(20, 4, n=3, best_of=3, **ON))
        assert b.draft.steps.count(0) == 2, "those that are forked"
        assert b.target.steps[:3] == [0, 0, 0] and len(b.target.forked) == 2
        await b.check_closed()


async def prompts_of(choices: Choices) -> None:
    async for _ in choices.parts():
        pass


async def test_a_client_that_goes_at_once_leaves_nothing_behind() -> None:
    async with bench() as b:
        b.draft.delay = 0.05
        parts = b.generation(20, 4, **ON).parts()
        await anext(parts)
        await parts.aclose()
        await b.check_closed()
