"""Why a proposal was not drawn on the device."""

from enum import StrEnum


class ChainMiss(StrEnum):
    """Why a draft with a runner of captured passes drew a proposal token by token, with the host between them."""

    ADJUSTMENTS = "adjustments"
    """Options that change single logits: penalties, biases, allowed and banned tokens, min_tokens."""
    STRUCTURE = "structure"
    """A structured output: what may come is known on the host."""
    DENSE = "dense"
    """Dense distributions are asked for."""
    AHEAD = "ahead"
    """It works ahead: other outcomes are looked for in each row, or nobody waits for it."""
    LENGTH = "length"
    """More tokens than a chain has."""
    KEYS = "keys"
    """Keys of so many rows and lengths would take too much memory to gather."""
    KINDS = "kinds"
    """Steps are captured for as many kinds of options already as may be."""
    MEMORY = "memory"
    """The device had no memory to capture its steps."""
    FAILED = "failed"
    """The device failed to draw one; from then on the host draws all."""
    CACHE = "cache"
    """The cache has no room for all of its tokens at once."""
