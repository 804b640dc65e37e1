"""Which tokens a forward pass feeds."""

from hypothesis import given
from hypothesis import strategies as st

from specpair.engine.scheduler import least_prefill, schedule
from specpair.engine.work import Work
from specpair.sequences.sequence import Sequence

SHORT = 6


def make_work(pending: int, row_count: int) -> Work:
    return Work(Sequence([0] * pending), min(row_count, pending))


works = st.lists(st.builds(make_work, st.integers(1, 60), st.integers(0, SHORT)), max_size=12)


@given(works=works, budget=st.integers(1, 64))
def test_schedule(works: list[Work], budget: int) -> None:
    chunks = schedule(works, budget, SHORT)
    short = [work for work in works if work.pending <= SHORT]
    assert [chunk.work for chunk in chunks[: len(short)]] == short, "short works come first, all of them"
    fed = 0
    for chunk in chunks:
        assert 0 < chunk.token_count <= chunk.work.pending
        left = chunk.work.pending - chunk.token_count
        assert chunk.completes == (left == 0)
        assert chunk.completes or left >= chunk.work.row_count, "the rows of a work are never split"
        fed += chunk.token_count
    of_short = sum(work.pending for work in short)
    least = least_prefill(of_short, SHORT)
    assert fed <= max(budget, of_short + least), "prefill stays within the budget, but for the least that it gets"
    assert chunks or not works or all(w.pending > SHORT for w in works)


scoring = st.builds(lambda rows: make_work(rows, rows), st.integers(1, 64))


@given(works=st.lists(st.one_of(scoring, st.builds(make_work, st.integers(1, 900), st.just(1))), max_size=80))
def test_a_pass_has_a_largest_size_whatever_comes(works: list[Work]) -> None:
    """Others wait no longer for a long prompt, or for many, than such a pass takes."""
    budget, most_rows = 32, 64
    of_short = sum(work.pending for work in works if work.pending <= SHORT)
    fed = sum(chunk.token_count for chunk in schedule(works, budget, SHORT))
    assert fed < max(budget, of_short + least_prefill(of_short, SHORT)) + most_rows
    assert of_short <= len(works) * SHORT


def test_prefill_is_chunked_oldest_first() -> None:
    old, young = make_work(50, 1), make_work(20, 1)
    assert [(c.work, c.token_count, c.completes) for c in schedule([old, young], 32, SHORT)] == [(old, 32, False)]
    old.sequence.tokens = [0] * 18
    assert [(c.token_count, c.completes) for c in schedule([old, young], 32, SHORT)] == [(18, True), (14, False)]


def test_verify_rows_go_before_a_long_prefill() -> None:
    prefill, verify = make_work(500, 1), make_work(5, 5)
    chunks = schedule([prefill, verify], 32, SHORT)
    assert [(c.work, c.token_count) for c in chunks] == [(verify, 5), (prefill, 27)]


def test_rows_that_cannot_be_split_get_their_turn_beside_any_number_of_short_works() -> None:
    """Scoring wants the logits of all that it feeds."""
    scoring = Work(Sequence([0] * 64), 64)
    chunks = schedule([*(make_work(6, 6) for _ in range(75)), scoring], token_budget=512, short=18)
    assert [chunk.token_count for chunk in chunks if chunk.work is scoring] == [64]


def test_a_prefill_gets_on_beside_any_number_of_short_works() -> None:
    prefill = make_work(2000, 1)
    chunks = schedule([*(make_work(6, 6) for _ in range(200)), prefill], token_budget=512, short=18)
    assert [chunk.token_count for chunk in chunks if chunk.work is prefill] == [600]
    few = schedule([*(make_work(1, 1) for _ in range(30)), prefill], token_budget=32, short=18)
    assert [chunk.token_count for chunk in few if chunk.work is prefill] == [18]
