"""Counts of an output's rounds, as its log line and its summary have them."""

import pytest

from coordinator.outputs.acceptance import Acceptance


@pytest.mark.parametrize(
    ("tokens", "rounds", "expected"), [(13, 5, "2.4"), (1, 5, "0.0"), (0, 5, "0.0"), (0, 0, "0.0")]
)
def test_tokens_per_round_are_never_below_0(tokens: int, rounds: int, expected: str) -> None:
    """A beam search that was cancelled has passes and no tokens."""
    acceptance = Acceptance()
    for _ in range(rounds):
        acceptance.add_steps(4, 1)
    assert f"{round(acceptance.tokens_per_round(tokens), 2)}" == expected
