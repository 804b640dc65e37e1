"""The work of a run: its tokens, its steps, and what is said of its passes."""

import time
from dataclasses import replace
from typing import Any

import pytest

from specpair.engine.work import BatchSize
from specpair.options import SamplingOptions, SequenceOptions
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence
from specpair.speculation.counted_rows import CountedRows
from target_service.verify_work import Verdict, VerdictCondition, VerifyCall, VerifyWork
from tests.unit.target_service.test_continuation import VOCABULARY, verdict

STOP = 9


def work(run_length: int, **fields: Any) -> VerifyWork:
    """The work of a run after a prompt of two tokens."""
    cached = Sequence([1, 2])
    options = SequenceOptions(sampling=SamplingOptions(stop_token_ids=(STOP,)))
    held: HeldSequence[Verdict] = HeldSequence(options, None, 2, cached, 2)
    draft = CountedRows.one_hot([], VOCABULARY)
    call = VerifyCall("a", 5, 2, [], [], draft, run_length=run_length, **fields)
    made = VerifyWork(sequence=cached, row_count=1, held=held, call=call)
    made.started_at = time.perf_counter()
    return made


@pytest.mark.parametrize(
    ("tokens", "run_length", "step"), [([4], 1, 5), ([4, 4, 4], 3, 7), ([4, STOP], 3, 6), ([STOP], 3, 5)]
)
def test_a_run_takes_its_tokens_until_it_is_done(tokens: list[int], run_length: int, step: int) -> None:
    run = work(run_length)
    for token in tokens:
        assert not run.done
        run.take(token)
    assert run.done and run.step == step
    assert [run.next_token, *run.run] == tokens and run.last_token == tokens[-1]


def test_it_ends_before_a_pass_that_would_end_too_late() -> None:
    run = work(64, run_seconds=0.3)
    run.started_at -= 0.11
    run.take(4)
    assert not run.done, "two passes of 0.11 s are shorter"
    run.started_at -= 0.11
    run.take(4)
    assert run.done, "three are not"


def test_others_are_waited_for_between_its_passes() -> None:
    """As by a call that has just come; not between the passes that read a prompt."""
    run = work(3)
    assert run.is_midway
    run.take(4)
    assert not run.is_midway


def test_its_passes_have_their_mean_size() -> None:
    """Beside the time that each of them took in the mean."""
    run = work(3)
    run.largest_batch, run.batch_count, run.batch_token_sum = BatchSize(512, 2), 2, 514
    run.take(4)
    assert run.batch_token_count == 512, "of a single token, the largest: its prompt may have had several passes"
    run.take(4)
    assert run.batch_token_count == 257


def test_no_call_on_condition_follows_a_run() -> None:
    condition = VerdictCondition(step=3, accepted_count=0, next_token=4)
    assert condition.is_met_by(verdict([], 4))
    assert not condition.is_met_by(replace(verdict([], 4), run=[6]))
