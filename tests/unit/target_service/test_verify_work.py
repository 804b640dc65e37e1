"""The work of a run: its rounds, their steps, and what is said of its passes."""

import time
from dataclasses import replace
from sys import getsizeof
from typing import Any

import pytest

from specpair.engine.work import BatchSize
from specpair.options import SamplingOptions, SequenceOptions
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence
from specpair.speculation.counted_rows import CountedRows
from target_service.judged_round import JudgedRound
from target_service.own_proposal import OwnProposal
from target_service.verify_work import MOST_RUN, Verdict, VerdictCondition, VerifyCall, VerifyWork
from tests.unit.target_service.test_continuation import VOCABULARY, verdict

STOP = 9


def work(run_length: int, **fields: Any) -> VerifyWork:
    """The work of a run after a prompt of two tokens."""
    cached = Sequence([1, 2])
    options = SequenceOptions(sampling=SamplingOptions(stop_token_ids=(STOP,)))
    held: HeldSequence[Verdict] = HeldSequence(options, None, 2, cached, 2)
    draft = CountedRows.one_hot([], VOCABULARY)
    call = VerifyCall("a", 5, 2, [], [], draft, run_length=run_length, **fields)
    made = VerifyWork(sequence=cached, row_count=1, held=held, call=call, vocab_size=VOCABULARY)
    made.started_at = time.perf_counter()
    return made


@pytest.mark.parametrize(
    ("tokens", "run_length", "step"), [([4], 1, 5), ([4, 4, 4], 3, 7), ([4, STOP], 3, 6), ([STOP], 3, 5)]
)
def test_a_run_takes_its_tokens_until_it_is_done(tokens: list[int], run_length: int, step: int) -> None:
    run = work(run_length)
    for token in tokens:
        assert not run.done
        take(run, token)
    assert run.done and run.step == step
    assert run.rounds == [JudgedRound(0, [token]) for token in tokens] and run.next_token == tokens[0]


def take(run: VerifyWork, token: int) -> None:
    """A pass that gives a token, and goes on with the run."""
    run.take([], token)
    run.sequence.replace_from(run.first_position, [token])
    run.resume()


ROWS = CountedRows.one_hot([6, 7, 8], VOCABULARY)


@pytest.mark.parametrize("rows", [None, ROWS], ids=["certain", "drawn"])
def test_it_goes_on_with_what_the_head_proposed(rows: CountedRows | None) -> None:
    """As if that had been called: with its tokens and distributions, after the tokens of the round before."""
    run = work(3, next_count=3)
    run.take([], 4)
    run.sequence.replace_from(run.first_position, [4])
    run.own_proposal = OwnProposal(step=5, length=3, token_ids=[6, 7, 8], parents=(), rows=rows)
    run.resume()
    assert (run.step, run.row_count, run.sequence.tokens, run.own_proposal) == (6, 4, [1, 2, 4, 6, 7, 8], None)
    assert run.asked.proposed == [6, 7, 8] and run.first_position == 3
    assert run.asked.draft is rows or (rows is None and run.asked.draft.padded[0].tolist() == ROWS.padded[0].tolist())
    run.take([0, 1], 9)
    assert run.done and not run.has_next, "the target's own token ends the output"
    assert (run.path, run.first_path, run.rounds) == ([0, 1], [], [JudgedRound(0, [4]), JudgedRound(3, [6, 7, 9])])


def test_it_ends_with_an_accepted_stop() -> None:
    run = work(3, next_count=2)
    run.asked = run.asked._replace(proposed=[STOP, 4])
    run.take([0, 1], 5)
    assert not run.has_next


def test_it_goes_on_with_a_tree_and_after_one() -> None:
    run = work(4, next_count=3)
    tree = OwnProposal(step=5, length=3, token_ids=[6, 7, 8, 9], parents=(-1, -1, 0, 2), rows=None)
    run.take([], 4)
    run.sequence.replace_from(run.first_position, [4])
    run.own_proposal = tree
    run.resume()
    assert (run.parents, run.row_count, run.tree.tokens) == ((-1, -1, 0, 2), 5, (6, 7, 8, 9))
    run.take([0, 2], 5)
    run.sequence.replace_from(run.first_position, [6, 8, 5])
    run.own_proposal = tree
    run.resume()
    assert run.sequence.tokens == [1, 2, 4, 6, 8, 5, 6, 7, 8, 9]
    run.take([1], 5)
    run.sequence.replace_from(run.first_position, [7, 5])
    run.resume()
    assert (run.parents, run.row_count, run.asked.tree, run.done) == (None, 1, None, False)
    run.take([], 5)
    run.resume()
    assert run.done and run.rounds == [
        JudgedRound(0, [4]),
        JudgedRound(3, [6, 8, 5], 4, ended_at_leaf=False),
        JudgedRound(3, [7, 5], 4, ended_at_leaf=True),
        JudgedRound(0, [5]),
    ]


def test_it_ends_before_a_pass_that_would_end_too_late() -> None:
    run = work(64, run_seconds=0.3)
    run.started_at -= 0.11
    take(run, 4)
    assert not run.done, "two passes of 0.11 s are shorter"
    run.started_at -= 0.11
    take(run, 4)
    assert run.done, "three are not"


def test_others_are_waited_for_between_its_passes() -> None:
    """As by a call that has just come; not between the passes that read a prompt."""
    run = work(3)
    assert run.is_midway
    take(run, 4)
    assert not run.is_midway


def test_its_passes_have_their_mean_size() -> None:
    """Beside the time that each of them took in the mean."""
    run = work(3)
    run.largest_batch, run.batch_count, run.batch_token_sum = BatchSize(512, 2), 2, 514
    take(run, 4)
    assert run.batch_token_count == 512, "of a single token, the largest: its prompt may have had several passes"
    take(run, 4)
    assert run.batch_token_count == 257


def test_no_call_on_condition_follows_a_run() -> None:
    condition = VerdictCondition(step=3, accepted_count=0, next_token=4)
    assert condition.is_met_by(verdict([], 4))
    assert not condition.is_met_by(replace(verdict([], 4), rounds=[JudgedRound(0, [4]), JudgedRound(0, [6])]))


@pytest.mark.parametrize("tokens", [1, 17])
def test_an_answer_counts_what_its_run_holds(tokens: int) -> None:
    """It is kept for a call that is repeated, and what is kept has a limit."""
    rounds = [JudgedRound(tokens - 1, [1000 * place + i for i in range(tokens)]) for place in range(1, MOST_RUN + 1)]
    made = replace(verdict([], 4), rounds=rounds)
    held = sum(getsizeof(one) + getsizeof(one.tokens) + sum(map(getsizeof, one.tokens)) for one in rounds)
    assert held < made.byte_count < 5 * held
    assert replace(made, rounds=rounds[:1]).byte_count < 2048
