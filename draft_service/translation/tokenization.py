"""Cuts bytes into the tokens of a vocabulary, as its tokenizer would."""

import re
from typing import NamedTuple

from draft_service.translation.vocabulary import Vocabulary

_RUN = re.compile("[\udc80-\udcff]+|[^\udc80-\udcff]+")
"""Bytes that are no UTF-8, or text between them."""


class Cut(NamedTuple):
    """Tokens, and where each ends in the data."""

    token_ids: list[int]
    ends: list[int]


def cut(vocabulary: Vocabulary, data: bytes, *, begins: bool = True) -> Cut:
    """The tokens of the data. What the tokenizer would change is cut into the longest tokens instead; a byte that no
    token has is left out. `begins` says whether it is the beginning of a text, before which some put a space."""
    found = Cut([], [])
    start = 0
    for run in _RUN.findall(data.decode("utf-8", "surrogateescape")):
        piece = run.encode("utf-8", "surrogateescape")
        is_text = not "\udc80" <= run[0] <= "\udcff"
        part = _encoded(vocabulary, run, piece, begins=begins and not start) if is_text else None
        part = part or longest(vocabulary, piece)
        found.token_ids.extend(part.token_ids)
        found.ends.extend(start + end for end in part.ends)
        start += len(piece)
    return found


def longest(vocabulary: Vocabulary, data: bytes) -> Cut:
    """The longest token at each place, from the first byte on."""
    found = Cut([], [])
    start = 0
    while start < len(data):
        hit = vocabulary.longest_at(data, start)
        if hit is None:
            start += 1
            continue
        found.token_ids.append(hit[0])
        found.ends.append(hit[1])
        start = hit[1]
    return found


def _encoded(vocabulary: Vocabulary, text: str, data: bytes, *, begins: bool) -> Cut | None:
    """As the tokenizer cuts it; None if its tokens are another text."""
    token_ids = vocabulary.encode(text)
    pieces = [vocabulary.pieces.get(token_id, b"") for token_id in token_ids]
    joined = b"".join(pieces)
    surplus = len(joined) - len(data)
    if surplus not in (0, 1) or not all(pieces) or joined[surplus:] != data or joined[:surplus] not in (b"", b" "):
        return None
    first = Cut([], [])
    if surplus and (not begins or pieces[0] == b" "):
        first = longest(vocabulary, pieces[0][1:])
        end = len(pieces[0]) - 1
        del token_ids[0], pieces[0]
    else:
        end = -surplus
    ends = first.ends
    for piece in pieces:
        end += len(piece)
        ends.append(end)
    return Cut([*first.token_ids, *token_ids], ends)
