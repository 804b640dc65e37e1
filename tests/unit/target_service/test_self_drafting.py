"""A sequence without room in the cache costs no other its proposal; only steps of its own make an early end of a
proposal worth it; and a batch of which only some can be drawn whole has the proposals of each alone."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from specpair.errors import CapacityExhaustedError
from specpair.models.load_runner import load_runner
from specpair.models.native_headed_runner import NativeHeadedRunner
from specpair.native.library import native_library
from specpair.options import SamplingOptions, SequenceOptions
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence
from specpair.speculation.randomness import LAST_STEP
from target_service.self_drafting import SelfDrafter
from tests.services import engine_config
from tests.tiny_heads import make_head
from tests.tiny_models import make_model
from tests.unit.target_service.test_whole_drafts import TEXTS, fed

VOCABULARY = 16
GREEDY = SamplingOptions(temperature=0.0)


def work_of(
    tokens: list[int], holding: Any, sampling: SamplingOptions = GREEDY, min_confidence: float = 0.0, step: int = 1
) -> Any:
    held: Any = HeldSequence(SequenceOptions(sampling=sampling), None, 2, Sequence(tokens), 2)
    call = SimpleNamespace(next_count=2, next_min_confidence=min_confidence, step=step)
    return SimpleNamespace(
        done=True, error=None, options=held.options, parents=None, path=[], held=held, call=call, step=step,
        sequence=SimpleNamespace(tokens=tokens, holding=holding), own_proposal=None,
    )  # fmt: skip


class RoomForSome:
    """A runner that has no room for sequences of four tokens; what it drafts is token 5."""

    problem: Exception = CapacityExhaustedError("none")

    drafters = ()
    most_tokens = 4
    feeds_itself = False

    def __init__(self, takes_steps: bool = True) -> None:
        self.takes_steps = takes_steps

    def begin(self, holdings: list[Any], places: list[range], most: int) -> Any:
        if any(len(own) == 3 for own in places):
            raise self.problem
        wide = torch.nn.functional.one_hot(torch.tensor(5), VOCABULARY).float()
        return SimpleNamespace(logits=lambda tokens, rows: wide.repeat(len(rows), 1))


def test_a_sequence_without_room_costs_no_other_its_proposal() -> None:
    works = [work_of(list(range(1, length + 1)), object()) for length in (3, 4, 5)]
    runner: Any = RoomForSome()
    SelfDrafter(runner, max_model_len=64, vocab_size=64, tree_tokens=0).draft(works)
    assert [work.own_proposal and work.own_proposal.token_ids for work in works] == [[5, 5], None, [5, 5]]


def test_nothing_is_proposed_after_the_last_step_and_others_have_their_proposals() -> None:
    """The draws of the step after it could not be keyed."""
    sampled, tokens = SamplingOptions(temperature=1.0, seed=4), list(range(1, 6))
    works = [work_of(list(tokens), object(), sampled, step=step) for step in (1, LAST_STEP, LAST_STEP - 1)]
    runner: Any = RoomForSome()
    SelfDrafter(runner, max_model_len=64, vocab_size=64, tree_tokens=0).draft(works)
    assert [work.own_proposal and len(work.own_proposal.token_ids) for work in works] == [2, None, 2]


def test_want_of_memory_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    runner: Any = RoomForSome()
    runner.problem = MemoryError()
    works = [work_of(list(range(1, length + 1)), object()) for length in (3, 4)]
    SelfDrafter(runner, max_model_len=64, vocab_size=64, tree_tokens=0).draft(works)
    assert [work.own_proposal and work.own_proposal.token_ids for work in works] == [[5, 5], None]
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "there is no memory to draw the head's proposal"
    ]


@pytest.mark.parametrize(("takes_steps", "count"), [(True, 1), (False, 2)])
def test_a_proposal_that_one_pass_gives_does_not_end_early(takes_steps: bool, count: int) -> None:
    work, runner = work_of([1, 2, 3], object(), min_confidence=0.9), RoomForSome(takes_steps)
    SelfDrafter(runner, max_model_len=64, vocab_size=64, tree_tokens=0).draft([work])  # type: ignore[arg-type]
    assert len(work.own_proposal.token_ids) == count


@pytest.mark.skipif(native_library() is None, reason="needs a C compiler")
def test_a_mixed_batch_has_the_proposals_of_each_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, head = make_model(tmp_path / "target"), make_head(tmp_path / "head")
    _, runner = load_runner(engine_config(target, head=str(head), runner="native"))
    assert isinstance(runner, NativeHeadedRunner)
    drafter = SelfDrafter(runner, max_model_len=64, vocab_size=64, tree_tokens=0)
    holdings = [fed(runner, text[:-1]) for text in TEXTS]
    options = [GREEDY, SamplingOptions(temperature=0.9, top_p=0.7, seed=4), SamplingOptions(temperature=0.9, seed=5)]

    def works() -> list[Any]:
        return [work_of(list(text), held, own) for text, held, own in zip(TEXTS, holdings, options, strict=True)]

    alone, together = works(), works()
    for work in alone:
        drafter.draft([work])
    begun = []
    begin = NativeHeadedRunner.begin
    monkeypatch.setattr(
        NativeHeadedRunner, "begin", lambda self, some, *rest: begun.append(len(some)) or begin(self, some, *rest)
    )
    drafter.draft(together)
    assert [work.own_proposal.token_ids for work in together] == [work.own_proposal.token_ids for work in alone]
    assert all(len(work.own_proposal.token_ids) == 2 for work in alone)
    assert sorted(begun) == [1, 2]
