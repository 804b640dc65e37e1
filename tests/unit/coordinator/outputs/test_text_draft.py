"""A drafter that reads nothing but the text: limits and refusals. What it draws: tests/service/test_text_drafts.py."""

from typing import Any

import pytest

from coordinator.outputs.text_draft import TextDraft
from coordinator.peers.merged_session import MergedSession
from specpair.errors import InvalidDistributionError, NotSupportedError
from specpair.options import Drafter, Rule, SamplingOptions, SequenceOptions
from tests.unit.coordinator.fake_language import VOCAB_SIZE
from tests.unit.coordinator.pair_bench import bench, collect

REPEATED = [5, 6, 7, 8] * 4
GREEDY = SamplingOptions(temperature=0.0)


def a_draft(cooldown: float = 60.0, vocab_size: int = VOCAB_SIZE, encoder: tuple[int, ...] = ()) -> TextDraft:
    options = SequenceOptions(sampling=GREEDY, rule=Rule.TOKEN, vocab_size=vocab_size, encoder_ids=encoder)
    return TextDraft(Drafter.NGRAM, options, len(REPEATED), 6, cooldown)


async def tokens_of(draft: TextDraft, history: list[int], count: int = 3) -> list[int] | None:
    answer = await draft.propose(1, history, count)
    return None if answer is None else list(answer.token_ids)


async def test_it_follows_a_history_that_grows() -> None:
    draft = a_draft()
    assert await tokens_of(draft, REPEATED) == [5, 6, 7]
    assert await tokens_of(draft, [*REPEATED, 5, 6]) == [7, 8, 5]
    assert draft.guess(2, [*REPEATED, 5, 6], 2) == [7, 8]


async def test_no_proposal_is_longer_than_the_longest() -> None:
    assert len(await tokens_of(a_draft(), REPEATED, 50) or ()) == 6


async def test_tokens_that_the_target_does_not_have_are_not_proposed() -> None:
    """What an encoder read may have others; so may the rows of a padded vocabulary."""
    assert await tokens_of(a_draft(vocab_size=7), REPEATED) == [5, 6]
    assert await tokens_of(a_draft(encoder=(1, 2, 3, 4)), [9, 1, 2], 2) == [3, 4]


async def test_stop_tokens_are_held_back_until_the_output_is_long_enough() -> None:
    """Tokens of the prompt are none of the output."""
    sampling = SamplingOptions(temperature=0.0, min_tokens=2, stop_token_ids=(7,))
    options = SequenceOptions(sampling=sampling, rule=Rule.TOKEN, vocab_size=VOCAB_SIZE)
    for prompt_length, expected in ((len(REPEATED), [7, 8, 5]), (len(REPEATED) + 1, [])):
        draft = TextDraft(Drafter.PROMPT_LOOKUP, options, prompt_length, 6, 0.0)
        assert await tokens_of(draft, [*REPEATED, 5, 6]) == expected


async def test_several_at_once_have_places_of_their_own() -> None:
    """Equal ones would draw by the same numbers, and siblings of a tree would not be independent (rule 7)."""
    async with bench(with_draft=False) as b:
        merged = b.generation(12, 2, drafts=("ngram", "prompt-lookup"))._draft
        assert isinstance(merged, MergedSession)
        sources = merged._sources.values()
        assert [source._options.draft_index for source in sources if isinstance(source, TextDraft)] == [1, 2]


async def test_after_a_refusal_it_is_quiet_for_a_while() -> None:
    draft = a_draft()
    draft.leave_alone(InvalidDistributionError("proposal", "refused"))
    assert await tokens_of(draft, REPEATED) is None and draft.room(3) == 0
    draft = a_draft(cooldown=0.0)
    draft.leave_alone(InvalidDistributionError("proposal", "refused"))
    assert await tokens_of(draft, REPEATED) == [5, 6, 7] and draft.room(3) == 6


async def test_an_output_proposes_again_after_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    proposals = list[int]()

    async def verify(name: str, step: int, length: int, proposal: Any, *arguments: Any, **more: Any) -> Any:
        if proposal is not None:
            proposals.append(step)
            if len(proposals) == 1:
                raise NotSupportedError("proposals of this kind")
        return await judge(name, step, length, proposal, *arguments, **more)

    async with bench(with_draft=False) as b:
        judge = b.target.verify
        monkeypatch.setattr(b.target, "verify", verify)
        generation = b.generation(120, 2, drafter=Drafter.NGRAM, prompt_ids=tuple(REPEATED), sampling=GREEDY)
        async for _ in generation.parts():
            pass
        assert generation.acceptance.fallback_count == 1 and len(proposals) > 1
        await b.check_closed()


async def test_without_anything_to_propose_the_target_says_it_alone() -> None:
    async with bench(with_draft=False) as b:
        generation = b.generation(12, 2)
        await collect(generation)
        assert generation.acceptance.draft_round_count == 0 and generation.proposals.drafter is None
