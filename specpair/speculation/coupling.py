"""The coupled rule: draft and target choose with the same noise, and the output is what the target chooses.

At each position both take the argmax of log p + g, with noise g keyed by (seed, position). Draft tokens are accepted as
long as the target chooses the same token. The target's first different choice is the correction; its choice after a
wholly accepted block is the bonus. So the output is the target's own sampling, token for token, whatever the draft
does: it depends only on prompt, options and seed. Greedy decoding needs no noise, and is judged like this under every
rule.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from specpair.speculation.arrays import on_host, placed
from specpair.speculation.device_race import race_in_parts
from specpair.speculation.device_randomness import as_signed
from specpair.speculation.gumbel import choose
from specpair.speculation.sampling import came_of_finite
from specpair.speculation.verification import Judgement, packed_rows


def verify_coupled(
    target: Tensor, draft_tokens: np.ndarray, lengths: np.ndarray, seeds: Sequence[int], positions: Sequence[int]
) -> Judgement:
    """Judges a batch of blocks in one pass.

    `target` holds the rows of all sequences one after the other, [sum of (K_b + 1), V]. `seeds` and `positions` key the
    noise of each row. `draft_tokens` [B, K] are padded to K; `lengths` [B] are their numbers without padding.
    """
    return verify_choices(choices(target, seeds, positions)[0], draft_tokens, lengths)


def choices(target: Tensor, seeds: Sequence[int], positions: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The choice of each row [R, V], int64 [R], and whether it came of finite logits, bool [R]. From a device they come
    together: one synchronisation."""
    if target.device.type == "cpu":
        return choose(target, seeds, positions).numpy(), came_of_finite(target.numpy())
    keys = [placed(as_signed(numbers), target.device) for numbers in (seeds, positions)]
    chosen, finite = on_host([race_in_parts(target, *keys), came_of_finite(target)])
    return chosen, finite > 0


def verify_choices(choices: np.ndarray, draft_tokens: np.ndarray, lengths: np.ndarray) -> Judgement:
    """Judges blocks by the target's choice in each row: `choices` [sum of (K_b + 1)]. Other arguments as above."""
    most = draft_tokens.shape[1]
    rows = packed_rows(lengths.tolist(), max(most, 1))
    agrees = (choices[rows[:, :most]] == draft_tokens) & (np.arange(most) < lengths[:, None])
    accepted_counts = np.logical_and.accumulate(agrees, -1).sum(-1)
    return Judgement(accepted_counts, choices[rows[:, 0] + accepted_counts])
