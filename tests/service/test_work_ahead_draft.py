"""A draft that works ahead prepares what it would answer, and nothing else changes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from draft_service.ahead.ahead import WorkAhead
from draft_service.ahead.counts import Result
from draft_service.ahead.row_cost import RowCost
from draft_service.host import DraftHost
from specpair.speculation.randomness import LAST_STEP
from specpair.v1 import draft_service_pb2 as pb
from specpair.v1 import sequence_service_pb2
from tests.service.ahead_caller import ORDER, PROMPT, AheadCaller, ahead_caller, asked, close_sequence, open_sequence
from tests.services import RunningModel, draft_config, running_draft
from tests.tiny_models import make_model

PENALTIES = {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.2}
SAMPLINGS = {
    "greedy": {"temperature": 0.0, "seed": 4},
    "sampled": {"temperature": 1.0, "seed": 4},
    "penalised": {"temperature": 0.8, "seed": 4, **PENALTIES},
    "greedy-penalised": {"temperature": 0.0, "seed": 4, **PENALTIES},
}
ALL_OUTCOMES = 8


@pytest.fixture(params=["contiguous", "paged"])
async def draft(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunningModel]:
    folder = make_model(tmp_path / "draft", vocab_size=64)
    # The code of transformers gives other last bits in other company, unless it is told not to.
    config = draft_config(folder, cache=request.param, deterministic=request.param == "paged")
    async with running_draft(config) as model:
        yield model


async def prepare(
    caller: AheadCaller, draft: RunningModel, name: str, fields: dict[str, Any], **order: Any
) -> tuple[Any, dict[tuple[int, int], pb.AheadBlock]]:
    """Opens a sequence and takes its first step. Returns the answer and all blocks that were prepared after it."""
    await open_sequence(draft, name, PROMPT, **fields)
    answer = await caller.call(name, 0, len(PROMPT), [], work_ahead={**ORDER, **order})
    return answer, await caller.prepared(name, 1, order.get("max_outcomes", ORDER["max_outcomes"]))


@pytest.mark.few_cases(12)
@pytest.mark.parametrize("encoding", ["DISTRIBUTION_ENCODING_SPARSE", "DISTRIBUTION_ENCODING_DENSE"])
@pytest.mark.parametrize("rule", ["ACCEPTANCE_RULE_TOKEN", "ACCEPTANCE_RULE_BLOCK", "ACCEPTANCE_RULE_COUPLED"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
async def test_a_prepared_block_is_the_answer_to_the_call_of_its_outcome(
    draft: RunningModel, sampling: str, rule: str, encoding: str
) -> None:
    fields = {"sampling": SAMPLINGS[sampling], "rule": rule, "encoding": encoding}
    async with ahead_caller(draft) as caller:
        first, blocks = await prepare(caller, draft, "s", fields)
        proposed = list(first.proposal.token_ids)
        assert len(blocks) == ALL_OUTCOMES
        assert {accepted for accepted, _ in blocks} > {0}
        for (accepted, token), block in blocks.items():
            assert (block.step, block.base_length) == (1, len(PROMPT))
            assert accepted == len(proposed) or token != proposed[accepted]
            answer = await asked(draft, fields, [*PROMPT, *proposed[:accepted], token], 1)
            assert block.proposal == answer.proposal and len(answer.proposal.token_ids) == 4
        await close_sequence(draft, "s")
    await draft.check_clean()


RULES = ["ACCEPTANCE_RULE_TOKEN", "ACCEPTANCE_RULE_BLOCK", "ACCEPTANCE_RULE_COUPLED"]


@pytest.mark.few_cases(9)
@pytest.mark.parametrize("way", ["asks", "has the proposal", "tells"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sampling", ["greedy", "penalised"])
async def test_a_sequence_goes_on_from_its_branch_as_from_a_call(
    draft: RunningModel, sampling: str, rule: str, way: str
) -> None:
    """Over several rounds of hits, for corrections and whole blocks, then a miss."""
    fields = {"sampling": SAMPLINGS[sampling], "rule": rule}
    async with ahead_caller(draft) as caller:
        first, blocks = await prepare(caller, draft, "s", fields)
        tokens, proposed = list(PROMPT), list(first.proposal.token_ids)
        for step in range(1, 5):
            accepted, token = min(blocks) if step % 2 else max(blocks)
            appended = [*proposed[:accepted], token]
            call: Any = ("s", step, len(tokens), appended)
            tokens += appended
            expected = await asked(draft, fields, tokens, step)
            assert blocks[accepted, token].proposal == expected.proposal
            if way == "tells":
                await caller.tell(*call, work_ahead=ORDER)
            else:
                answer = await caller.call(*call, has_proposal=way != "asks", work_ahead=ORDER)
                assert answer.was_prepared and answer.HasField("proposal") == (way == "asks")
                assert way != "asks" or answer.proposal == expected.proposal
            proposed = list(expected.proposal.token_ids)
            blocks = await caller.prepared("s", step + 1, 1)
        other = proposed[0]  # never guessed as a correction of itself, whatever else is being prepared
        answer = await caller.call("s", 5, len(tokens), [other])
        assert not answer.was_prepared and not caller.unneeded
        assert answer.proposal == (await asked(draft, fields, [*tokens, other], 5)).proposal
        await close_sequence(draft, "s")
    await draft.check_clean()


@pytest.mark.parametrize("base", [len(PROMPT), len(PROMPT) + 7])
async def test_what_was_not_prepared_is_not_drawn_where_the_caller_has_it(draft: RunningModel, base: int) -> None:
    """The sequence has its tokens all the same, unless they do not fit, which the next call learns."""
    fields = {"sampling": SAMPLINGS["sampled"], "rule": RULES[2]}
    async with ahead_caller(draft) as caller:
        first, _ = await prepare(caller, draft, "s", fields)
        other = first.proposal.token_ids[0]  # never guessed as a correction of itself
        await caller.tell("s", 1, base, [other], work_ahead=ORDER)
        held, length = draft.host.sequences.get("s"), len(PROMPT) + 1 if base == len(PROMPT) else len(PROMPT)
        async with asyncio.timeout(5.0):
            while held.length < length:
                await asyncio.sleep(0.01)
        appended = [] if length > len(PROMPT) else [other]
        again = await caller.call("s", 1, length, appended)
        assert (held.length, held.last_step) == (len(PROMPT) + 1, 1) and not caller.unneeded
        assert again.proposal == (await asked(draft, fields, [*PROMPT, other], 1)).proposal
        await close_sequence(draft, "s")
    await draft.check_clean()


async def test_a_call_that_comes_before_its_block_is_ready_waits_for_it(draft: RunningModel) -> None:
    fields = {"sampling": SAMPLINGS["sampled"], "rule": RULES[2]}
    async with ahead_caller(draft) as caller:
        first, blocks = await prepare(caller, draft, "s", fields)
        await open_sequence(draft, "t", PROMPT, **fields)
        (accepted, token), block = next(iter(blocks.items()))
        assert (await caller.call("t", 0, len(PROMPT), [], work_ahead=ORDER)).proposal == first.proposal
        appended = [*first.proposal.token_ids[:accepted], token]
        answer = await caller.call("t", 1, len(PROMPT), appended)
        assert answer.proposal == block.proposal
        for name in ("s", "t"):
            await close_sequence(draft, name)
    await draft.check_clean()


async def end_of(disturb: str, draft: RunningModel, fields: dict[str, Any]) -> list[int]:
    """Disturbs sequence "s" of five tokens. Returns the tokens that it has afterwards."""
    if disturb == "rollback":
        await draft.sequences.RollbackSequence(sequence_service_pb2.RollbackSequenceRequest(sequence_id="s", length=3))
        return PROMPT[:3]
    if disturb == "fork":
        await draft.sequences.ForkSequence(
            sequence_service_pb2.ForkSequenceRequest(sequence_id="s", forked_sequence_id="forked")
        )
        await close_sequence(draft, "forked")
    if disturb == "close":
        await close_sequence(draft, "s")
        await open_sequence(draft, "s", PROMPT, **fields)
    return PROMPT


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("disturb", ["rollback", "fork", "close", "miss"])
async def test_nothing_is_left_of_branches_that_are_disturbed(draft: RunningModel, disturb: str, waits: bool) -> None:
    """By calls that come while they are under way, or after; what the sequence is answered with stays the same."""
    fields = {"sampling": SAMPLINGS["penalised"]}
    async with ahead_caller(draft) as caller:
        await open_sequence(draft, "s", PROMPT, **fields)
        await caller.call("s", 0, len(PROMPT), [], work_ahead=ORDER)
        if waits:
            await caller.prepared("s", 1, ORDER["max_outcomes"])
        tokens = await end_of(disturb, draft, fields)
        answer = await caller.call("s", 2, len(tokens), [60, 61], work_ahead=ORDER)
        assert not answer.was_prepared
        assert (
            len(tokens) < len(PROMPT) or answer.proposal == (await asked(draft, fields, [*tokens, 60, 61], 2)).proposal
        )
        await close_sequence(draft, "s")
    await draft.check_clean()


async def test_a_sequence_of_which_the_stream_broke_goes_on_without_its_branches(draft: RunningModel) -> None:
    """The call is repeated on a new stream, which gets what is ready once more."""
    fields = {"sampling": SAMPLINGS["sampled"]}
    async with ahead_caller(draft) as caller:
        first, blocks = await prepare(caller, draft, "s", fields)
    async with ahead_caller(draft) as caller:
        assert await caller.call("s", 0, len(PROMPT), [], work_ahead=ORDER) == first
        assert await caller.prepared("s", 1, len(blocks)) == blocks
        await close_sequence(draft, "s")
    await draft.check_clean()


async def test_a_call_that_is_alone_asks_for_nothing_ahead(draft: RunningModel) -> None:
    await open_sequence(draft, "s", PROMPT, sampling=SAMPLINGS["sampled"])
    request = pb.ProposeTokensRequest(
        sequence_id="s", base_length=len(PROMPT), num_speculative_tokens=4, work_ahead=pb.WorkAhead(**ORDER)
    )
    await draft.hot.ProposeTokens(request)
    assert ahead_of(draft).branch_count == 0
    await close_sequence(draft, "s")


@pytest.mark.parametrize("field", ["max_outcomes", "num_speculative_tokens"])
async def test_an_order_for_nothing_is_refused(draft: RunningModel, field: str) -> None:
    async with ahead_caller(draft) as caller:
        await open_sequence(draft, "s", PROMPT, sampling=SAMPLINGS["sampled"])
        with pytest.raises(AssertionError, match=f"work_ahead.{field}"):
            await caller.call("s", 0, len(PROMPT), [], work_ahead={**ORDER, field: 0})
        await close_sequence(draft, "s")


async def test_nothing_is_prepared_after_the_last_step(draft: RunningModel, caplog: pytest.LogCaptureFixture) -> None:
    """Its draws could not be keyed, and would fail in a pass that other clients share."""

    async def go_on() -> None:
        base, appended = len(PROMPT), list[int]()
        for step in range(30):
            answer = await other.call("other", step, base, appended)
            base, appended = base + len(appended), [answer.proposal.token_ids[0]]

    async with ahead_caller(draft) as caller, ahead_caller(draft) as other:
        for name in ("asking", "telling", "other"):
            await open_sequence(draft, name, PROMPT, sampling=SAMPLINGS["sampled"])
        going = asyncio.create_task(go_on())
        for _ in range(4):  # a repeated call has it prepared again
            answer = await caller.call("asking", LAST_STEP, len(PROMPT), [], work_ahead=ORDER)
            assert len(answer.proposal.token_ids) == 4
        await caller.tell("telling", LAST_STEP, len(PROMPT), [], is_plain=True, work_ahead=ORDER)
        await going
        assert not ahead_of(draft).branch_count and not caller.blocks and not caplog.records
        for name in ("asking", "telling", "other"):
            await close_sequence(draft, name)
    await draft.check_clean()


async def test_blocks_near_the_longest_length_are_shorter(draft: RunningModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowCost, "seconds", lambda _, count, size: 0.0)  # so that all lengths are among them
    fields = {"sampling": SAMPLINGS["sampled"]}
    most = len(PROMPT) + 4
    async with ahead_caller(draft) as caller:
        await open_sequence(draft, "s", PROMPT, **fields)
        first = await caller.call("s", 0, len(PROMPT), [], work_ahead={**ORDER, "max_length": most, "max_outcomes": 64})
        blocks = await caller.prepared("s", 1, 20)
        for (accepted, token), block in blocks.items():
            count = most - len(PROMPT) - accepted - 1
            assert len(block.proposal.token_ids) == count > 0
            tokens = [*PROMPT, *first.proposal.token_ids[:accepted], token]
            assert block.proposal == (await asked(draft, fields, tokens, 1, num_speculative_tokens=count)).proposal
        await close_sequence(draft, "s")
    await draft.check_clean()


async def test_rows_are_shared_among_sequences(draft: RunningModel) -> None:
    fields = {"sampling": SAMPLINGS["sampled"]}
    names = [f"s{number}" for number in range(4)]
    ahead_of(draft).most_rows = 12
    async with ahead_caller(draft) as caller:
        for name in names:
            await open_sequence(draft, name, PROMPT, **fields)
        for step in range(2):  # in the first round, those that come early do not know of the others
            appended = [60] if step else []
            calls = [
                caller.call(n, step, len(PROMPT), appended, work_ahead={**ORDER, "max_outcomes": 12}) for n in names
            ]
            await asyncio.gather(*calls)
        assert [len(await caller.prepared(name, 2, 1)) <= 4 for name in names] == [True] * 4
        assert ahead_of(draft).branch_count <= 12
        for name in names:
            await close_sequence(draft, name)
    await draft.check_clean()


async def test_what_was_prepared_is_counted(draft: RunningModel) -> None:
    fields = {"sampling": SAMPLINGS["sampled"]}
    counts = ahead_of(draft).counts
    async with ahead_caller(draft) as caller:
        first, blocks = await prepare(caller, draft, "s", fields)
        (accepted, token), _ = next(iter(blocks.items()))
        appended = [*first.proposal.token_ids[:accepted], token]
        await caller.call("s", 1, len(PROMPT), appended, work_ahead=ORDER)
        others = await caller.prepared("s", 2, ORDER["max_outcomes"])
        other = next(token for token in range(64) if (0, token) not in others)
        await caller.call("s", 2, len(PROMPT) + len(appended), [other])
        await close_sequence(draft, "s")
    assert counts.calls == {(Result.HIT, accepted): 1, (Result.MISS, 0): 1}
    assert counts.blocks == {"used": 1, "unused": 2 * ORDER["max_outcomes"] - 1}
    foreseen = [outcome for outcome in (*blocks, *others) if outcome[0] == 4]  # bonus tokens, drawn with what follows
    assert foreseen and counts.tokens == 2 * ORDER["max_outcomes"] * 4 + len(foreseen)


def ahead_of(draft: RunningModel) -> WorkAhead:
    assert isinstance(draft.host, DraftHost) and draft.host.model is not None
    return draft.host.model.ahead
