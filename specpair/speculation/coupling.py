"""The coupled rule: draft and target choose with the same noise, and the output is what the target chooses.

At each position both take the argmax of log p + g, with noise g keyed by (seed, position). Draft tokens are accepted as
long as the target chooses the same token. The target's first different choice is the correction; its choice after a
wholly accepted block is the bonus. So the output is the target's own sampling, token for token, whatever the draft
does: it depends only on prompt, options and seed. Greedy decoding needs no noise, and is judged like this under every
rule.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from specpair.speculation.arrays import on_host, placed
from specpair.speculation.device_race import race_in_parts
from specpair.speculation.device_randomness import as_signed
from specpair.speculation.gumbel import choose
from specpair.speculation.sampling import came_of_finite


class ChosenTokens(NamedTuple):
    """The result of verifying one block."""

    accepted_count: int
    """At most K_b."""
    next_token: int
    """The correction, or the bonus token if all were accepted."""


def verify_coupled(
    target: Tensor, proposed: Sequence[Sequence[int]], seeds: Sequence[int], positions: Sequence[int]
) -> list[ChosenTokens]:
    """Judges a batch of blocks in one pass.

    `target` holds the rows of all sequences one after the other, [sum of (K_b + 1), V]. `seeds` and `positions` key the
    noise of each row. `proposed` has the K_b draft tokens of each block.
    """
    return verify_choices(choices(target, seeds, positions)[0].tolist(), proposed)


def choices(target: Tensor, seeds: Sequence[int], positions: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The choice of each row [R, V], int64 [R], and whether it came of finite logits, bool [R]. From a device they come
    together: one synchronisation."""
    if target.device.type == "cpu":
        return choose(target, seeds, positions).numpy(), came_of_finite(target.numpy())
    keys = [placed(as_signed(numbers), target.device) for numbers in (seeds, positions)]
    chosen, finite = on_host([race_in_parts(target, *keys), came_of_finite(target)])
    return chosen, finite > 0


def verify_choices(choices: Sequence[int], proposed: Sequence[Sequence[int]]) -> list[ChosenTokens]:
    """Judges blocks by the target's choice in each row: `choices` [sum of (K_b + 1)].

    A loop, without arrays: a pass reads all weights, so the processor's caches are cold after it, and each call into
    numpy then takes longer than judging a block.
    """
    judged: list[ChosenTokens] = []
    first = 0
    for tokens in proposed:
        accepted_count = 0
        while accepted_count < len(tokens) and choices[first + accepted_count] == tokens[accepted_count]:
            accepted_count += 1
        judged.append(ChosenTokens(accepted_count, choices[first + accepted_count]))
        first += len(tokens) + 1
    return judged
