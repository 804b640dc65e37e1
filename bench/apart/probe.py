"""What a few synchronous rounds say about a pair, before its cells are measured: where the best K may be."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.apart.arithmetic import Devices, synchronous_bound
from bench.apart.rows import measured_profile, median_round_ms
from bench.case import Case
from bench.figures import of_case
from bench.line import Line
from bench.measurement import Measurement


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Measured without a round trip."""

    profile: list[float]
    """The chance that the token at each position is accepted, if those before it are."""
    round_ms: Line
    """Milliseconds of a round over K, with everything that is not a pass."""

    @classmethod
    def of(cls, cases: Sequence[Case], measurements: Sequence[Measurement]) -> "Probe":
        """`cases` differ in K, the longest last."""
        outputs = [of_case(measurements, case) for case in cases]
        ks = [case.num_speculative_tokens or 0 for case in cases]
        return cls(
            profile=measured_profile(outputs[-1]),
            round_ms=Line.through(ks, [median_round_ms(each) for each in outputs]),
        )

    def best_k(self, round_trip_ms: float) -> int:
        """The best synchronous K by calculation, from what rounds really take."""
        devices = Devices(
            verify_ms=self.round_ms.intercept, step_ms=max(self.round_ms.slope, 0.0), round_trip_ms=round_trip_ms
        )
        return synchronous_bound(self.profile, devices).num_speculative_tokens
