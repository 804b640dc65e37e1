"""A sequence and its state in the cache."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specpair.sequences.absences import Absences
from specpair.sequences.encoder_input import EncoderInput

if TYPE_CHECKING:
    from specpair.caches.holding import Holding


@dataclass(eq=False)
class Sequence:
    """Tokens whose keys and values the cache holds or will hold.

    While work is under way the sequence belongs to the device thread, also where that goes on to the next work by
    itself; otherwise to the event loop. The loop never touches the cache: it lowers `valid_length`, and the device
    thread rolls the cache back before it feeds.
    """

    tokens: list[int]
    valid_length: int = 0
    """The cache agrees with `tokens` at most up to here. The loop lowers it; only the device thread raises it, in a
    forward pass or when it opens the holding."""
    answered_at: float = 0.0
    """When its last work ended, by time.perf_counter; 0 before that. Device thread only."""
    absences: Absences = field(default_factory=Absences)
    """Times from the end of a work to the next one, where that one was not here already. Device thread only."""
    is_followed: bool = False
    """Whether the call after its last work was here before that ended. Device thread only."""
    is_suspect: bool = False
    """Whether it was in a failed pass and has had no answer since. Device thread only."""
    is_branch: bool = False
    """Whether it was made ahead of a call that may not come: it is the first to lose its cache."""
    encoder_input: EncoderInput | None = None
    """What the encoder reads for it; None for a model without one."""
    kept_length: int | None = None
    """Its first tokens that the cache had kept of others when its holding was first opened: they were not fed. None
    before that, 0 for a fork. The device thread sets it."""
    holding: "Holding | None" = None
    """Device thread only. None before the first work and after the cache was taken for others."""

    def replace_from(self, start: int, token_ids: list[int]) -> None:
        """Sets the tokens to `tokens[:start] + token_ids`. What the cache holds of unchanged tokens stays valid."""
        same = start
        for old, new in zip(self.tokens[start:], token_ids, strict=False):
            if old != new:
                break
            same += 1
        del self.tokens[start:]
        self.tokens.extend(token_ids)
        self.valid_length = min(self.valid_length, same)
