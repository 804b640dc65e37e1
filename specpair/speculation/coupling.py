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

from specpair.speculation.gumbel import choose
from specpair.speculation.verification import Judgement, packed_rows


def verify_coupled(
    target: Tensor, draft_tokens: np.ndarray, lengths: np.ndarray, seeds: Sequence[int], positions: Sequence[int]
) -> Judgement:
    """Judges a batch of blocks in one pass.

    `target` holds the rows of all sequences one after the other, [sum of (K_b + 1), V]. `seeds` and `positions` key the
    noise of each row. `draft_tokens` [B, K] are padded to K; `lengths` [B] are their numbers without padding.
    """
    return verify_choices(choose(target, seeds, positions).numpy(), draft_tokens, lengths)


def verify_choices(choices: np.ndarray, draft_tokens: np.ndarray, lengths: np.ndarray) -> Judgement:
    """Judges blocks by the target's choice in each row: `choices` [sum of (K_b + 1)]. Other arguments as above."""
    most = draft_tokens.shape[1]
    rows = packed_rows(lengths.tolist(), max(most, 1))
    agrees = (choices[rows[:, :most]] == draft_tokens) & (np.arange(most) < lengths[:, None])
    accepted_counts = np.logical_and.accumulate(agrees, -1).sum(-1)
    return Judgement(accepted_counts, choices[rows[:, 0] + accepted_counts])
