"""A draft that works ahead prepares what it would answer, and nothing else changes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from specpair.v1 import draft_service_pb2 as pb
from tests.service.ahead_caller import ORDER, AheadCaller, ahead_caller, close_sequence, open_sequence
from tests.services import RunningModel, draft_config, running_draft
from tests.tiny_models import make_model

PROMPT = [5, 9, 2, 7, 1]
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


async def asked(draft: RunningModel, fields: dict[str, Any], tokens: list[int], step: int, **call: Any) -> Any:
    """What an ordinary call on a fresh sequence with these tokens is answered with."""
    await open_sequence(draft, "fresh", tokens, prompt_length=len(PROMPT), **fields)
    request = pb.ProposeTokensRequest(
        sequence_id="fresh", step=step, base_length=len(tokens), **{"num_speculative_tokens": 4, **call}
    )
    answer = await draft.hot.ProposeTokens(request)
    await close_sequence(draft, "fresh")
    return answer


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


@pytest.mark.parametrize("has_proposal", [False, True])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sampling", ["greedy", "penalised"])
async def test_a_sequence_goes_on_from_its_branch_as_from_a_call(
    draft: RunningModel, sampling: str, rule: str, has_proposal: bool
) -> None:
    """Over several rounds of hits, for corrections and whole blocks, then a miss."""
    fields = {"sampling": SAMPLINGS[sampling], "rule": rule}
    async with ahead_caller(draft) as caller:
        first, blocks = await prepare(caller, draft, "s", fields)
        tokens, proposed = list(PROMPT), list(first.proposal.token_ids)
        for step in range(1, 5):
            accepted, token = min(blocks) if step % 2 else max(blocks)
            appended = [*proposed[:accepted], token]
            answer = await caller.call("s", step, len(tokens), appended, has_proposal=has_proposal, work_ahead=ORDER)
            tokens += appended
            expected = await asked(draft, fields, tokens, step)
            assert answer.was_prepared and answer.HasField("proposal") != has_proposal
            assert blocks[accepted, token].proposal == expected.proposal
            assert has_proposal or answer.proposal == expected.proposal
            proposed = list(expected.proposal.token_ids)
            blocks = await caller.prepared("s", step + 1, 1)
        other = next(t for t in range(64) if (0, t) not in blocks)
        answer = await caller.call("s", 5, len(tokens), [other])
        assert not answer.was_prepared
        assert answer.proposal == (await asked(draft, fields, [*tokens, other], 5)).proposal
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
