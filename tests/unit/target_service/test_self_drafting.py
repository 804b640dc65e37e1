"""What a head drafts at temperature 0 from narrow rows is what `draw_next` takes from rows of the whole vocabulary; a
sequence without room in the cache costs no other its proposal."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from specpair.drafting import draw_next, reads_only_the_likeliest
from specpair.errors import CapacityExhaustedError
from specpair.models.output_tokens import OutputTokens
from specpair.options import Rule, SamplingOptions, SequenceOptions
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence
from target_service.own_proposal import OwnDraft
from target_service.self_drafting import SelfDrafter, take_narrow

VOCABULARY = 16
OUTPUTS = OutputTokens(torch.tensor([1, 2, 4, 5, 6, 8, 11, 12, 13, 15]), VOCABULARY)


def drafts(rule: Rule, count: int) -> list[OwnDraft]:
    made = []
    for place in range(count):
        tokens = [1, 2, 3 + place]
        options = SequenceOptions(sampling=SamplingOptions(temperature=0.0), rule=rule)
        held: Any = HeldSequence(options, None, len(tokens), Sequence(tokens), len(tokens))
        made.append(OwnDraft.after(held, tokens, 1, 2))
    return made


@pytest.mark.parametrize("rule", Rule)
def test_narrow_rows_give_the_tokens_of_wide_ones(rule: Rule) -> None:
    narrow, wide = drafts(rule, 4), drafts(rule, 4)
    assert all(reads_only_the_likeliest(draft) for draft in narrow)
    rows = torch.randn(4, len(OUTPUTS.token_ids), generator=torch.Generator().manual_seed(2))
    rows[1, [3, 7]] = 9.0  # the first of several
    rows[2, 4] = torch.nan
    take_narrow(narrow, rows, OUTPUTS)
    draw_next(wide, OUTPUTS(rows))
    for own, other in zip(narrow, wide, strict=True):
        assert (own.tokens, own.counts, own.done) == (other.tokens, other.counts, other.done)
        assert type(own.error) is type(other.error)
    assert narrow[1].tokens == [5] and not narrow[2].tokens and narrow[2].error is not None


@pytest.mark.parametrize("sampling", [{"temperature": 1.0}, {"temperature": 0.0, "banned_token_ids": (3,)}])
def test_others_need_whole_rows(sampling: dict[str, Any]) -> None:
    tokens = [1, 2, 3]
    options = SequenceOptions(sampling=SamplingOptions(**sampling))
    held: Any = HeldSequence(options, None, len(tokens), Sequence(tokens), len(tokens))
    assert not reads_only_the_likeliest(OwnDraft.after(held, tokens, 1, 2))


class RoomForSome:
    """A runner that has no room for sequences of four tokens; what it drafts is token 5."""

    drafters = ()
    most_tokens = 4
    feeds_itself = False

    def begin(self, holdings: list[Any], places: list[range], most: int) -> Any:
        if any(len(own) == 3 for own in places):
            raise CapacityExhaustedError("none")
        wide = torch.nn.functional.one_hot(torch.tensor(5), VOCABULARY).float()
        return SimpleNamespace(logits=lambda tokens, rows: wide.repeat(len(rows), 1))


def test_a_sequence_without_room_costs_no_other_its_proposal() -> None:
    works: list[Any] = []
    for length in (3, 4, 5):
        tokens = list(range(1, length + 1))
        held = HeldSequence(SequenceOptions(sampling=SamplingOptions(temperature=0.0)), None, 2, Sequence(tokens), 2)
        call = SimpleNamespace(next_count=2, next_min_confidence=0.0, step=1)
        works.append(
            SimpleNamespace(
                done=True, error=None, options=held.options, parents=None, path=[], held=held, call=call,
                sequence=SimpleNamespace(tokens=tokens, holding=object()), own_draft=None,
            )
        )  # fmt: skip
    runner: Any = RoomForSome()
    SelfDrafter(runner, max_model_len=64, tree_tokens=0).draft(works)
    assert [work.own_draft and work.own_draft.tokens for work in works] == [[5, 5], None, [5, 5]]
