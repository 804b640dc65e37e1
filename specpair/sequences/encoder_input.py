"""What the encoder of an encoder-decoder model reads for a sequence, and what came of it."""

from dataclasses import dataclass
from typing import Any, Self


@dataclass(eq=False)
class EncoderInput:
    """Shared by a sequence, its forks and its branches: the encoder runs once for all of them, and what came of it is
    freed with the last of them."""

    token_ids: tuple[int, ...]
    state: Any = None
    """What the decoder attends to; None before the encoder ran. Device thread only."""

    @classmethod
    def of(cls, token_ids: tuple[int, ...]) -> Self | None:
        """None without tokens: the model has no encoder."""
        return cls(token_ids) if token_ids else None
