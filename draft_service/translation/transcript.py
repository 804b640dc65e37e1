"""The text of a sequence in two vocabularies: the target's tokens, and the draft's tokens of the same bytes.

It is followed position by position: what a call adds is cut together with the last tokens before it, as the draft's
tokenizer may join them, and what a rollback drops is dropped from both. So a call costs the same after ten tokens and
after ten thousand.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import takewhile

from draft_service.translation.tokenization import Cut, cut
from draft_service.translation.vocabulary import Vocabulary

LOOK_BEHIND = 8
"""Tokens before a change that are cut again with it."""
SPECIAL = b"\xff"
"""Stands in the text for a special token that both have. It is no byte of any UTF-8 text."""


class Transcript:
    """The committed tokens of one sequence in both vocabularies."""

    def __init__(self, reader: Vocabulary, writer: Vocabulary, specials: dict[int, int]):
        """`reader` is the target's vocabulary, `writer` the draft's, `specials` has the draft's token for each special
        one of the target that it has, too."""
        self._reader, self._writer, self._specials = reader, writer, specials
        self.text = bytearray()
        self.ends: list[int] = []
        """Where each of the target's tokens ends in the text."""
        self._atoms: dict[int, int] = {}
        """The draft's token for each special token in the text, by its place."""
        self.own_ids = list(writer.lead)
        """The draft's tokens."""
        self.own_ends = [0] * len(self.own_ids)

    def follow(self, same: int, added: Sequence[int]) -> int:
        """Keeps the first `same` of the target's tokens, and adds others after them.

        Returns from where on the draft's tokens have changed.
        """
        start = self.ends[same - 1] if same else 0
        self._drop(same, start)
        for token_id in added:
            self._append(token_id)
        return self._cut_again(start)

    def forked(self, length: int) -> "Transcript":
        """A copy of the first `length` of the target's tokens."""
        copy = Transcript(self._reader, self._writer, self._specials)
        length = min(length, len(self.ends))
        end = self.ends[length - 1] if length else 0
        own = bisect_right(self.own_ends, end)
        copy.text, copy.ends = self.text[:end], self.ends[:length]
        copy._atoms = {place: token for place, token in self._atoms.items() if place < end}
        copy.own_ids, copy.own_ends = self.own_ids[:own], self.own_ends[:own]
        return copy

    def tail(self, count: int) -> bytes:
        """The text of the last `count` of the target's tokens, after the last special one of them."""
        start = self.ends[-count - 1] if count < len(self.ends) else 0
        return bytes(self.text[max([start, *(place + 1 for place in self._atoms_from(start))]) :])

    def _atoms_from(self, start: int) -> list[int]:
        """The places of special tokens from `start` on, ascending."""
        return list(takewhile(lambda place: place >= start, reversed(self._atoms)))[::-1]

    def _drop(self, same: int, start: int) -> None:
        for place in self._atoms_from(start):
            del self._atoms[place]
        del self.ends[same:]
        del self.text[start:]

    def _append(self, token_id: int) -> None:
        piece = self._reader.pieces.get(token_id)
        if piece is None:
            own_id = self._specials.get(token_id)
            is_lead = not self.text and self._writer.lead and own_id == self._writer.lead[-1]
            if own_id is not None and not is_lead:
                self._atoms[len(self.text)] = own_id
                self.text += SPECIAL
            elif own_id is None and token_id not in (self._reader.bos, self._reader.eos):
                self.text += self._reader.specials.get(token_id, "").encode()
        elif not self.text and self._reader.drops_first_space and piece.startswith(b" "):
            self.text += piece[1:]
        else:
            self.text += piece
        self.ends.append(len(self.text))

    def _cut_again(self, changed: int) -> int:
        """Cuts the text into the draft's tokens, from a few tokens before `changed` on; keeps those that stay."""
        kept = bisect_right(self.own_ends, changed)
        if kept == len(self.own_ids) and (kept and self.own_ends[-1] == len(self.text)):
            return kept
        first = max(min(kept, len(self._writer.lead)), kept - LOOK_BEHIND)
        start = self.own_ends[first - 1] if first else 0
        token_ids, ends = self._cut_from(start)
        boundaries = set(ends)
        while kept > first and self.own_ends[kept - 1] not in boundaries:
            kept -= 1
        place = self.own_ends[kept - 1] if kept > first else start
        after = bisect_right(ends, place)
        self.own_ids[kept:], self.own_ends[kept:] = token_ids[after:], ends[after:]
        if not self.own_ids:  # a model has to be fed something
            self.own_ids, self.own_ends = [self._writer.filler], [0]
        return kept

    def _cut_from(self, start: int) -> Cut:
        """The draft's tokens of the text from `start` on, special ones each by itself."""
        found = Cut([], [])
        for place in [*self._atoms_from(start), len(self.text)]:
            token_ids, ends = cut(self._writer, bytes(self.text[start:place]), begins=start == 0)
            found.token_ids.extend(token_ids)
            found.ends.extend(start + end for end in ends)
            if place in self._atoms:
                found.token_ids.append(self._atoms[place])
                found.ends.append(place + 1)
            start = place + 1
        return found


def boundary_after(own_cut: Cut, place: int) -> int | None:
    """The index of the first token after `place`, if a token ends there; None if one goes across it."""
    index = bisect_left(own_cut.ends, place)
    if place == 0:
        return 0
    return index + 1 if index < len(own_cut.ends) and own_cut.ends[index] == place else None
