"""Compares what clients received with the output of the target alone. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum


class End(StrEnum):
    """How a request ended for its client."""

    FINISHED = "finished"
    CANCELLED = "cancelled"
    """The client cancelled."""
    OUT_OF_TIME = "out_of_time"
    """The client's deadline passed."""
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One output as its client received it."""

    request: str
    """The name of its case: prompt, options, seed. Nothing else may change the output."""
    choice_index: int
    token_ids: Sequence[int]
    text: str
    end: End
    told_count: int | None = None
    """Tokens of the output as its summary says; None without one, as in an output that has not finished."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The same output, by the target alone, undisturbed."""

    token_ids: Sequence[int]
    text: str


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The differences of one output, in tokens; all 0 if there are none."""

    compared: int = 0
    lost: int = 0
    repeated: int = 0
    changed: int = 0
    wrong_texts: int = 0
    """1 if the tokens are right but the text or the summary's count is wrong."""

    @property
    def is_none(self) -> bool:
        return not (self.lost or self.repeated or self.changed or self.wrong_texts)

    def __add__(self, other: "Difference") -> "Difference":
        return Difference(
            compared=self.compared + other.compared,
            lost=self.lost + other.lost,
            repeated=self.repeated + other.repeated,
            changed=self.changed + other.changed,
            wrong_texts=self.wrong_texts + other.wrong_texts,
        )


def compare(expected: Expected, seen: Seen) -> Difference:
    """An output that ended early is compared as far as it was received; a finished one has to be complete."""
    right, got = list(expected.token_ids), list(seen.token_ids)
    is_whole = seen.end is End.FINISHED
    if got == (right if is_whole else right[: len(got)]):
        return Difference(compared=len(got), wrong_texts=int(not _is_told_rightly(expected, seen)))
    lost, repeated, changed = _edits(right, got, is_whole)
    return Difference(compared=len(got), lost=lost, repeated=repeated, changed=changed)


def compare_all(expected: dict[tuple[str, int], Expected], seen: Iterable[Seen]) -> Difference:
    """The sum over all outputs; `expected` by request and index of the output."""
    differences = (compare(expected[one.request, one.choice_index], one) for one in seen)
    return sum(differences, Difference())


def _is_told_rightly(expected: Expected, seen: Seen) -> bool:
    if seen.end is not End.FINISHED:
        return expected.text.startswith(seen.text)
    return seen.text == expected.text and seen.told_count == len(seen.token_ids)


def _edits(right: list[int], got: list[int], is_whole: bool) -> tuple[int, int, int]:
    """Tokens lost, repeated and changed: the shortest story that SequenceMatcher finds.

    What is missing at the end counts where the output is whole.
    """
    lost = repeated = changed = 0
    for tag, start, end, got_start, got_end in SequenceMatcher(None, right, got, autojunk=False).get_opcodes():
        is_counted = is_whole or end < len(right)
        if tag == "delete":
            lost += (end - start) * is_counted
        elif tag == "replace":
            changed += max((end - start) * is_counted, got_end - got_start)
        elif tag == "insert":
            inserted = got[got_start:got_end]
            is_again = _is_again(inserted, got[:got_start], got[got_end:])
            repeated += len(inserted) * is_again
            changed += len(inserted) * (not is_again)
    return lost, repeated, changed


def _is_again(inserted: list[int], before: list[int], behind: list[int]) -> bool:
    """Whether the tokens repeat those just before, or those just after repeat them."""
    size = len(inserted)
    return inserted in (before[-size:], behind[:size])
