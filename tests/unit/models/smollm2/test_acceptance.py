"""Tokens per round from chances of acceptance."""

import numpy as np
import pytest

from models.smollm2.acceptance import expected_rounds, tokens_per_round


def simulated_rounds(chances: np.ndarray, k: int, generator: np.random.Generator) -> int:
    position = rounds = 0
    while position < len(chances):
        rounds += 1
        accepted = 0
        while accepted < k and position < len(chances) and generator.random() < chances[position]:
            accepted += 1
            position += 1
        position += 1
    return rounds


def test_certain_answers_are_counted_by_hand() -> None:
    agrees = np.array([1, 1, 0, 1, 1, 1, 1, 0, 0], dtype=float)
    assert expected_rounds(agrees, 1) == 6  # 1 1, 0, 1 1, 1 1, 0, 0
    assert expected_rounds(agrees, 4) == 3  # 1 1 0, 1 1 1 1 0, 0
    assert expected_rounds(np.zeros(5), 3) == 5
    assert tokens_per_round([np.ones(10)], 4) == 5.0


@pytest.mark.parametrize("k", [1, 3, 8])
def test_expected_rounds_are_the_mean_of_simulated_ones(k: int) -> None:
    generator = np.random.default_rng(5)
    chances = generator.random(30)
    rounds = [simulated_rounds(chances, k, generator) for _ in range(4000)]
    spread = np.std(rounds) / len(rounds) ** 0.5
    assert abs(np.mean(rounds) - expected_rounds(chances, k)) < 5 * spread


def test_longer_answers_weigh_more() -> None:
    assert tokens_per_round([np.ones(18), np.zeros(2)], 1) == pytest.approx(20 / 11)
