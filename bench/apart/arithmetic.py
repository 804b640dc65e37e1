"""What rounds between devices apart take by calculation, and the most tokens per second that they allow.

Times are in milliseconds. A pass takes its time whatever the number of its rows and sequences.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from specpair.theory.speedup import optimum


@dataclass(frozen=True, kw_only=True)
class Devices:
    """The imitated devices and the link between them."""

    verify_ms: float
    """A pass of the target."""
    step_ms: float
    """A step of the draft: one token."""
    round_trip_ms: float
    """From the coordinator, which is beside the target, to the draft and back."""

    def round_ms(self, num_speculative_tokens: int) -> float:
        """A synchronous round without any overhead; without proposals it does not need the draft."""
        if num_speculative_tokens == 0:
            return self.verify_ms
        return self.verify_ms + num_speculative_tokens * self.step_ms + self.round_trip_ms


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best fixed K by calculation."""

    num_speculative_tokens: int
    tokens_per_second: float
    """Of all sequences together."""


def synchronous_bound(profile: Sequence[float], devices: Devices, batch_size: int = 1) -> Best:
    """Theorem 3.8 of Leviathan et al. with the round trip in it.

    max over K of (1 + a_1 + a_1 a_2 + ...) / (verify + K step + round trip), where `profile` is the chance a_i that the
    i-th token is accepted if those before it are. For one `a` at all positions the numerator is
    (1 - a^(K+1)) / (1 - a). No way of choosing a fixed K exceeds it that drafts and verifies in turns.
    """
    verify = devices.verify_ms
    best = optimum(profile, devices.step_ms / verify, devices.round_trip_ms / verify)
    per_second = best.walltime_factor * 1000 / verify * batch_size
    return Best(num_speculative_tokens=best.num_speculative_tokens, tokens_per_second=per_second)


def co_located_bound(profile: Sequence[float], devices: Devices, batch_size: int = 1) -> Best:
    """The same for draft and target on one device in one process, as llama.cpp has them: no round trip, no overlap."""
    beside = Devices(verify_ms=devices.verify_ms, step_ms=devices.step_ms, round_trip_ms=0.0)
    return synchronous_bound(profile, beside, batch_size)


def profile_of(survival: Sequence[float]) -> list[float]:
    """The chance of each token if those before it are accepted, from the measured chance that all up to it are.

    Later positions were measured in fewer rounds, since the last proposals of an output are shorter: hence the 1.
    """
    return [min(1.0, after / before) if before else 0.0 for before, after in pairwise([1.0, *survival])]


def nearest(ks: Sequence[int], best: int, count: int) -> list[int]:
    """The `count` entries of `ks` nearest to the calculated best K, in their order."""
    return sorted(sorted(ks, key=lambda k: (abs(k - best), -k))[:count])
