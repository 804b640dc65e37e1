"""The draft's output tokens: those that the target gives the most probability in its answers."""

from pathlib import Path

import numpy as np

from models.smollm2.shards import ANSWER, GIVEN, read_shard, shard_paths
from models.smollm2.target import END, START


def answer_mass(folder: Path, vocabulary: int) -> np.ndarray:
    """Probability that the target gives each token, summed over all answer positions, at the answer's temperature.

    At temperature 0 the whole probability is the chosen token's; above, it is that of temperature 1.
    """
    mass = np.zeros(vocabulary)
    for path in shard_paths(folder):
        shard = read_shard(path)
        greedy = np.repeat(shard.temperatures == 0, shard.lengths)
        sampled = shard.kinds != GIVEN
        answers = shard.kinds[sampled] == ANSWER
        cold = answers & greedy[sampled]
        np.add.at(mass, shard.top_ids[cold][:, 0].astype(int), 1.0)
        warm = answers & ~greedy[sampled]
        np.add.at(mass, shard.top_ids[warm].astype(int), np.exp(shard.top_logs[warm].astype(np.float64)))
    return mass


def choose_output_tokens(mass: np.ndarray, size: int) -> list[int]:
    """The `size` tokens with the largest mass, the chat template's own among them; sorted."""
    preferred = mass.copy()
    preferred[[START, END]] = np.inf
    return sorted(np.argsort(-preferred, kind="stable")[:size].tolist())
