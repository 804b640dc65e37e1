"""The checker sees what is wrong, in histories that are wrong on purpose."""

from dataclasses import replace

import pytest

from tests.faults.history import Difference, End, Expected, Seen, compare, compare_all

RIGHT = list(range(100, 140))
EXPECTED = Expected(token_ids=RIGHT, text="abc")
SEEN = Seen(request="a", choice_index=0, token_ids=RIGHT, text="abc", end=End.FINISHED, told_count=40)


def seen(token_ids: list[int], end: End = End.FINISHED) -> Difference:
    return compare(EXPECTED, replace(SEEN, token_ids=token_ids, text="", end=end))


def test_the_right_output_is_right() -> None:
    assert compare(EXPECTED, SEEN) == Difference(compared=40)


@pytest.mark.parametrize("end", [End.CANCELLED, End.OUT_OF_TIME, End.FAILED])
def test_an_output_that_ended_early_is_right_so_far(end: End) -> None:
    for count in (0, 1, 39):
        early = replace(SEEN, token_ids=RIGHT[:count], text="ab", end=end, told_count=None)
        assert compare(EXPECTED, early) == Difference(compared=count)


@pytest.mark.parametrize(
    ("got", "difference"),
    [
        (RIGHT[:20], Difference(compared=20, lost=20)),
        (RIGHT[:-1], Difference(compared=39, lost=1)),
        ([], Difference(lost=40)),
        (RIGHT[1:], Difference(compared=39, lost=1)),
        (RIGHT[:10] + RIGHT[13:], Difference(compared=37, lost=3)),
        (RIGHT[:10] + RIGHT[7:], Difference(compared=43, repeated=3)),
        (RIGHT + RIGHT[-1:], Difference(compared=41, repeated=1)),
        ([*RIGHT[:10], 7, *RIGHT[11:]], Difference(compared=40, changed=1)),
        ([*RIGHT[:10], 7, 8, *RIGHT[10:]], Difference(compared=42, changed=2)),
        ([*RIGHT, 7], Difference(compared=41, changed=1)),
    ],
)
def test_wrong_tokens_are_seen_for_what_they_are(got: list[int], difference: Difference) -> None:
    assert seen(got) == difference


@pytest.mark.parametrize(
    ("got", "difference"),
    [
        (RIGHT[:10] + RIGHT[12:20], Difference(compared=18, lost=2)),
        (RIGHT[:10] + RIGHT[8:20], Difference(compared=22, repeated=2)),
        ([*RIGHT[:10], 7, *RIGHT[11:20]], Difference(compared=20, changed=1)),
        ([*RIGHT[:10], 7], Difference(compared=11, changed=1)),
    ],
)
def test_so_they_are_in_an_output_that_ended_early(got: list[int], difference: Difference) -> None:
    assert seen(got, End.CANCELLED) == difference


def test_other_text_over_the_right_tokens_is_seen() -> None:
    assert compare(EXPECTED, replace(SEEN, text="abd")).wrong_texts == 1
    assert compare(EXPECTED, replace(SEEN, text="b", token_ids=RIGHT[:3], end=End.CANCELLED)).wrong_texts == 1


def test_a_summary_that_counts_otherwise_is_seen() -> None:
    assert compare(EXPECTED, replace(SEEN, told_count=39)).wrong_texts == 1
    assert compare(EXPECTED, replace(SEEN, told_count=None)).wrong_texts == 1


def test_sums_over_outputs_and_their_indices() -> None:
    other = Expected(token_ids=[1, 2], text="")
    expected = {("a", 0): EXPECTED, ("a", 1): other}
    outputs = [SEEN, replace(SEEN, choice_index=1, token_ids=[1], text="", told_count=1)]
    assert compare_all(expected, outputs) == Difference(compared=41, lost=1)
    swapped = [replace(SEEN, choice_index=1, text="")]
    assert not compare_all(expected, swapped).is_none
