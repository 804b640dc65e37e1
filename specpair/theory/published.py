"""Published figures, compared with the results of the formulas for the same inputs.

Leviathan et al., "Fast Inference from Transformers via Speculative Decoding" (2023), Tables 1 and 4; the worked example
of Shekhar, "Speculative Decoding".
"""

from enum import StrEnum
from typing import NamedTuple

from specpair.theory.speedup import expected_tokens, operations_factor, speedup, walltime_factor

INPUT_STEP = 0.01
"""Last digit to which Table 4 prints its inputs."""


class Agreement(StrEnum):
    """How a printed figure compares with ours."""

    EQUAL = "equal"
    WITHIN_ROUNDING = "within rounding"
    """Not for the inputs as printed, but for some that round to them."""
    DIFFERENT = "different"


class OperationsRow(NamedTuple):
    """A row of Table 1, for cost and operations ratios of 0; factors to two digits."""

    acceptance: float
    num_speculative_tokens: int
    printed_operations: float
    printed_speed: float

    @property
    def operations(self) -> float:
        """Theorem 3.11."""
        return operations_factor(self.acceptance, self.num_speculative_tokens)

    @property
    def speed(self) -> float:
        """Theorem 3.8."""
        return walltime_factor(self.acceptance, self.num_speculative_tokens, cost_ratio=0.0)

    @property
    def agreement(self) -> Agreement:
        pairs = ((self.operations, self.printed_operations), (self.speed, self.printed_speed))
        return Agreement.EQUAL if all(_prints_as(*pair, digits=2) for pair in pairs) else Agreement.DIFFERENT


class WalltimeRow(NamedTuple):
    """A row of Table 4: expected (EXP) and measured (EMP) improvement of T5-XXL, to one digit."""

    task: str
    draft: str
    temperature: int
    num_speculative_tokens: int
    acceptance: float
    cost_ratio: float
    printed_expected: float
    printed_measured: float

    @property
    def expected(self) -> float:
        """Theorem 3.8 with the inputs as printed."""
        return walltime_factor(self.acceptance, self.num_speculative_tokens, self.cost_ratio)

    @property
    def expected_range(self) -> tuple[float, float]:
        """Theorem 3.8 with the inputs that round to the printed ones: it rises in acceptance and falls in cost."""
        half = INPUT_STEP / 2
        low, high = (
            walltime_factor(self.acceptance + shift, self.num_speculative_tokens, self.cost_ratio - shift)
            for shift in (-half, half)
        )
        return low, high

    @property
    def agreement(self) -> Agreement:
        if _prints_as(self.expected, self.printed_expected, digits=1):
            return Agreement.EQUAL
        low, high = self.expected_range
        reached = round(low, 1) <= self.printed_expected <= round(high, 1)
        return Agreement.WITHIN_ROUNDING if reached else Agreement.DIFFERENT


class ExampleCase(NamedTuple):
    """A case of the worked example: every round accepts `accepted_count` of the drafted tokens."""

    name: str
    accepted_count: int
    printed_speedup: float

    @property
    def tokens_per_round(self) -> float:
        """Equation (1) for a profile of certainties: the first tokens are always accepted, the next never."""
        rejected_count = EXAMPLE_NUM_SPECULATIVE_TOKENS - self.accepted_count
        return expected_tokens([1.0] * self.accepted_count + [0.0] * rejected_count, EXAMPLE_NUM_SPECULATIVE_TOKENS)

    @property
    def speedup(self) -> float:
        cost_ratio = EXAMPLE_DRAFT_MS / EXAMPLE_TARGET_MS
        return speedup(self.tokens_per_round, EXAMPLE_NUM_SPECULATIVE_TOKENS, cost_ratio)

    @property
    def plain_seconds(self) -> float:
        """Time of the whole answer without speculation."""
        return EXAMPLE_ANSWER_TOKENS * EXAMPLE_TARGET_MS / 1000

    @property
    def seconds(self) -> float:
        """Time of the whole answer with speculation."""
        return self.plain_seconds / self.speedup

    @property
    def agreement(self) -> Agreement:
        return Agreement.EQUAL if _prints_as(self.speedup, self.printed_speedup, digits=2) else Agreement.DIFFERENT


def _prints_as(value: float, printed: float, digits: int) -> bool:
    return f"{value:.{digits}f}" == f"{printed:.{digits}f}"


TABLE_1 = (
    OperationsRow(0.6, 2, 1.53, 1.96),
    OperationsRow(0.7, 3, 1.58, 2.53),
    OperationsRow(0.8, 2, 1.23, 2.44),
    OperationsRow(0.8, 5, 1.63, 3.69),
    OperationsRow(0.9, 2, 1.11, 2.71),
    OperationsRow(0.9, 10, 1.60, 6.86),
)

TABLE_4 = (
    WalltimeRow("EnDe", "T5-small", 0, 7, 0.75, 0.02, 3.2, 3.4),
    WalltimeRow("EnDe", "T5-base", 0, 7, 0.80, 0.04, 3.3, 2.8),
    WalltimeRow("EnDe", "T5-large", 0, 7, 0.82, 0.11, 2.5, 1.7),
    WalltimeRow("EnDe", "T5-small", 1, 7, 0.62, 0.02, 2.3, 2.6),
    WalltimeRow("EnDe", "T5-base", 1, 5, 0.68, 0.04, 2.4, 2.4),
    WalltimeRow("EnDe", "T5-large", 1, 3, 0.71, 0.11, 2.0, 1.4),
    WalltimeRow("CNNDM", "T5-small", 0, 5, 0.65, 0.02, 2.4, 3.1),
    WalltimeRow("CNNDM", "T5-base", 0, 5, 0.73, 0.04, 2.6, 3.0),
    WalltimeRow("CNNDM", "T5-large", 0, 3, 0.74, 0.11, 2.0, 2.2),
    WalltimeRow("CNNDM", "T5-small", 1, 5, 0.53, 0.02, 1.9, 2.3),
    WalltimeRow("CNNDM", "T5-base", 1, 3, 0.55, 0.04, 1.8, 2.2),
    WalltimeRow("CNNDM", "T5-large", 1, 3, 0.56, 0.11, 1.6, 1.7),
)

EXAMPLE_TARGET_MS = 50
EXAMPLE_DRAFT_MS = 5
EXAMPLE_NUM_SPECULATIVE_TOKENS = 4
EXAMPLE_ANSWER_TOKENS = 200
EXAMPLE = (
    ExampleCase("best", 4, 3.57),
    ExampleCase("average", 3, 2.86),
    ExampleCase("worst", 0, 0.71),
)
