"""Why a proposal was not drawn whole."""

from enum import StrEnum


class ChainMiss(StrEnum):
    """Why a draft whose runner can draw whole proposals drew one token by token, with Python between them."""

    ADJUSTMENTS = "adjustments"
    """Options that change single logits: penalties, biases, allowed and banned tokens, min_tokens."""
    STRUCTURE = "structure"
    """A structured output: what may come is known on the host."""
    DENSE = "dense"
    """Dense distributions are asked for."""
    AHEAD = "ahead"
    """It works ahead, on a device whose steps are captured: other outcomes are looked for in each row, or nobody waits
    for it."""
    CUTS = "cuts"
    """Compiled passes: top-k, top-p or min-p."""
    LENGTH = "length"
    """More tokens than a chain has."""
    KEYS = "keys"
    """Keys of so many rows and lengths would take too much memory to gather."""
    KINDS = "kinds"
    """Steps are captured for as many kinds of options already as may be."""
    MEMORY = "memory"
    """There was no memory: on a device, to capture its steps."""
    FAILED = "failed"
    """The runner failed to draw one; from then on all are drawn token by token."""
    CACHE = "cache"
    """The cache has no room for all of its tokens at once."""
