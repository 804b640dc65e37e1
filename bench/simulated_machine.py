"""The machine of a simulated pair, and its texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specpair.model_info import PassCost

Rates = tuple[float, float, float]
"""The chance that a token is accepted if all before it are: first of a block, second, later ones."""

TOKEN_COUNTS = (1, 2, 4, 8, 16, 32, 64)
"""Sizes of passes that are measured at the start."""


def pass_costs(times: Sequence[float]) -> tuple[PassCost, ...]:
    return tuple(PassCost(token_count=rows, seconds=time) for rows, time in zip(TOKEN_COUNTS, times, strict=True))


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The durations of its work, in microseconds."""

    pass_time: float = 9000.0
    """A pass of the target with one row."""
    row_time: float = 250.0
    """Each further row."""
    bend: int | None = None
    """Number of rows in a pass; each row beyond it takes three times as long."""
    step_time: float = 500.0
    """A step of the draft."""
    start_time: float = 0.0
    """The draft's work before the first step of a proposal."""
    slow_starts: int = 0
    """The draft's first so many proposals, openings among them, take longer: libraries load, kernels are compiled."""
    slow_start_time: float = 0.0
    """By so much."""
    step_row_time: float = 20.0
    """Each further sequence in it."""
    feed_row_time: float = 15.0
    """Each token that the draft must read before it proposes."""
    call_time: float = 300.0
    """A call there and back."""
    token_time: float = 0.0
    """Each proposed token in the call to the target: messages are longer."""
    loop_time: float = 200.0
    """The coordinator's own work in a round."""
    contention: float = 0.0
    """By how much target and draft slow each other down while both work."""
    noise: float = 0.08
    """Standard deviation of all times, relative."""
    stall_chance: float = 0.01
    """Share of the periods of a pass's length in which everything that begins stalls."""
    stall_factor: float = 4.0

    def target_time(self, rows: int) -> float:
        """A pass of the target."""
        beyond = 0 if self.bend is None else max(rows - self.bend, 0)
        return self.pass_time + self.row_time * (rows - 1 + 2 * beyond)

    def published(self, factor: float = 1.0) -> tuple[tuple[PassCost, ...], tuple[PassCost, ...]]:
        """What target and draft say that their passes cost, if they measured it while the machine's times were
        `factor` times as long."""
        target = [factor * self.target_time(rows) for rows in TOKEN_COUNTS]
        draft = [factor * (self.step_time + self.step_row_time * (rows - 1)) for rows in TOKEN_COUNTS]
        return pass_costs(target), pass_costs(draft)


MEASURED = Machine(
    pass_time=13_200.0, row_time=870.0, step_time=270.0, start_time=700.0, call_time=1500.0, loop_time=700.0
)
"""As measured: three processes on two cores, a target of 109 M parameters and the bundled draft."""


@dataclass(frozen=True, kw_only=True)
class Text:
    """The properties of an output."""

    length: int = 128
    prompt: int = 0
    """Tokens of its prompt."""
    rates: Callable[[int], Rates]
    """Rates, by the number of its tokens."""
    coverage: float = 1.0
    """The chance that the draft has anything to propose."""
    has_confidence: bool = False
    """Whether some tokens are easier than others and the draft's probabilities show it: each acceptance chance is drawn
    from a Beta distribution around the rate."""
