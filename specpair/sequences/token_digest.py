"""A digest of a list of tokens, to compare two lists."""

import hashlib
from array import array
from collections.abc import Iterable


def token_digest(token_ids: Iterable[int]) -> bytes:
    """32 bytes; the tokens themselves would take more than 30 bytes each."""
    return hashlib.sha256(array("Q", token_ids).tobytes()).digest()
