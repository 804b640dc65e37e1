"""A draft model whose tokens are guessed draws what it draws without guesses, from the same rows, in fewer passes."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from draft_service.drafters.guessing import GuessCounts, Guessing, GuessingWork, TextGuesser, make_ready
from draft_service.drafters.guessing_drafter import GuessingDrafter, advance_all
from draft_service.drafters.model import ProposeWork
from draft_service.proposal import ProposeCall
from specpair.engine.failures import DeviceLostError
from specpair.options import OwnDraft, SequenceOptions
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence
from specpair.speculation.prediction import Prediction
from tests.unit.draft_service.drafters.test_model import KINDS, PROMPT, VOCABULARY

COUNT = 7


def row_after(tokens: list[int]) -> Tensor:
    """What the model says after a text."""
    seed = hash(tuple(tokens)) % 2**31
    return 2 * torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed))


@dataclass
class Oracle:
    """Knows the text, and is wrong at some places."""

    text: list[int]
    wrong: frozenset[int]

    def after(self, drafted: list[int]) -> Iterator[Prediction]:
        place = len(drafted)
        token = self.text[place] if place not in self.wrong else (self.text[place] + 1) % VOCABULARY
        yield Prediction([token], [1.0], 1.0)


def held_of(options: SequenceOptions) -> HeldSequence[Any]:
    return HeldSequence(options, None, len(PROMPT), Sequence(list(PROMPT)), len(PROMPT))


def run(works: list[Any]) -> int:
    """Feeds works together until they are done, as the engine does; returns the number of passes."""
    passes = 0
    while going := [work for work in works if not work.done]:
        make_ready(going)
        rows: list[Tensor] = []
        for work in going:
            tokens = work.sequence.tokens
            first = len(tokens) - work.row_count + 1
            rows += [row_after(tokens[:length]) for length in range(first, len(tokens) + 1)]
            work.sequence.valid_length = len(tokens)
        fed = [list(work.sequence.tokens) for work in going]
        advance_all(going, torch.stack(rows))
        for work, before in zip(going, fed, strict=True):
            kept = work.sequence.valid_length
            assert work.sequence.tokens[:kept] == before[:kept], "what the cache holds belongs to the text"
        passes += 1
    return passes


def plain(options: SequenceOptions, **fields: Any) -> ProposeWork:
    held = held_of(options)
    return ProposeWork(sequence=held.cached, row_count=1, held=held, step=7, count=COUNT, **fields)


def guessing(options: SequenceOptions, oracle: Any, most: int = 3, **fields: Any) -> GuessingWork:
    held = held_of(options)
    own = Guessing(by=TextGuesser(OwnDraft.NGRAM), most=most, counts=GuessCounts())
    work = GuessingWork(
        sequence=held.cached, row_count=1, held=held, step=7, count=COUNT, guessing=own, predictor=oracle, **fields
    )
    return work


def same(work: ProposeWork, expected: ProposeWork) -> bool:
    """Tokens and rows, to the last bit."""
    rows = all(torch.equal(one, other) for one, other in zip(work.dense, expected.dense, strict=True))
    counts = [(list(row.token_ids), list(row.counts)) for row in work.counts]
    others = [(list(row.token_ids), list(row.counts)) for row in expected.counts]
    return work.tokens == expected.tokens and counts == others and rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [set(), {0}, {2}, {1, 4}, set(range(COUNT))], ids=str)
def test_guesses_change_no_bit(kind: str, wrong: set[int]) -> None:
    expected = plain(KINDS[kind])
    assert run([expected]) == COUNT
    work = guessing(KINDS[kind], Oracle(expected.tokens, frozenset(wrong)))
    passes = run([work])
    assert same(work, expected) and work.sequence.tokens == [*PROMPT, *expected.tokens]
    assert work.pass_count == passes == COUNT - work.accepted_guess_count
    assert (work.guessing.counts.guessed, work.guessing.counts.accepted) == (
        work.guess_count,
        work.accepted_guess_count,
    )
    assert passes == {0: 2, 1: 2 if 0 not in wrong else 3}.get(len(wrong), passes)
    assert len(wrong) < COUNT or passes == COUNT


def test_works_with_and_without_guesses_share_their_passes() -> None:
    options = list(KINDS.values())
    expected = [plain(own) for own in options]
    for work in expected:
        run([work])
    works: list[Any] = [
        guessing(own, Oracle(known.tokens, frozenset({i % 3})), most=1 + i % 4) if i % 3 else plain(own)
        for i, (own, known) in enumerate(zip(options, expected, strict=True))
    ]
    run(works)
    assert all(same(work, known) for work, known in zip(works, expected, strict=True))


def test_a_model_that_is_unsure_ends_where_it_would() -> None:
    options = KINDS["greedy"]
    expected = plain(options, min_confidence=0.02)
    run([expected])
    assert 1 < len(expected.tokens) < COUNT
    whole = plain(options)
    run([whole])
    work = guessing(options, Oracle(whole.tokens, frozenset()), min_confidence=0.02)
    run([work])
    assert same(work, expected)


def test_nothing_is_guessed_after_the_last_token() -> None:
    class Silent:
        def after(self, drafted: list[int]) -> Iterator[Prediction]:
            return iter(())

    expected = plain(KINDS["block"])
    run([expected])
    work = guessing(KINDS["block"], Oracle(expected.tokens, frozenset()), most=16)
    make_ready([work])
    assert work.row_count == COUNT and run([work]) == 1
    silent = guessing(KINDS["block"], Silent())
    assert run([silent]) == COUNT and silent.guess_count == 0 and same(silent, expected)


def test_a_guesser_that_fails_costs_its_guesses_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def after(self, drafted: list[int]) -> Iterator[Prediction]:
            raise IndexError

    expected = plain(KINDS["block"])
    run([expected])
    work, other = guessing(KINDS["block"], Broken()), guessing(KINDS["block"], Oracle(expected.tokens, frozenset()))
    assert run([work, other]) == COUNT and same(work, expected) and same(other, expected)
    assert "guessing tokens of the draft failed" in caplog.text


def test_a_lost_device_is_told_by_the_guesser_too() -> None:
    class Lost:
        def after(self, drafted: list[int]) -> Iterator[Prediction]:
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(DeviceLostError):
        make_ready([guessing(KINDS["block"], Lost())])


@pytest.mark.parametrize(("index", "tree"), [(1, 0), (0, 4)])
async def test_chains_that_are_merged_and_trees_are_not_guessed(index: int, tree: int) -> None:
    """How long a draft takes whose chain is merged must not tell of its tokens."""
    seen: list[Any] = []

    class Engine:
        async def run(self, work: Any) -> None:
            seen.append(work)

    held = held_of(SequenceOptions(sampling=KINDS["block"].sampling, draft_index=index))
    drafter = GuessingDrafter(Engine(), Guessing(by=TextGuesser(OwnDraft.NGRAM), most=3))
    call = ProposeCall(sequence_id="s", step=7, base_length=3, appended=[], count=COUNT, max_tree_tokens=tree)
    await drafter.propose(held, call)
    assert not isinstance(seen[0], GuessingWork)
    alone = SimpleNamespace(held=held_of(KINDS["block"]))
    await drafter.propose(alone.held, ProposeCall(sequence_id="s", step=7, base_length=3, appended=[], count=COUNT))
    assert isinstance(seen[1], GuessingWork)
