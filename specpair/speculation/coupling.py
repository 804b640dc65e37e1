"""The coupled rule: draft and target choose with the same noise, and what the target chooses comes out.

At each position both take argmax of log p + g with noise keyed by (seed, position). A draft token counts while it is
what the target chooses there; the target's first other choice is the correction, its choice behind a whole block the
bonus. So the output is the target's own sampling whatever the draft does, token for token: it depends on prompt,
options and seed alone.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from specpair.speculation.gumbel import choose
from specpair.speculation.verification import Verdicts, first_rows


def verify_coupled(
    target: Tensor, draft_tokens: Tensor, lengths: Tensor, seeds: Sequence[int], positions: Sequence[int]
) -> Verdicts:
    """Judges a batch of blocks in one pass.

    `target` holds the rows of all sequences one after the other, [sum of (K_b + 1), V]; `seeds` and `positions` name
    each row. `draft_tokens` [B, K] are padded to K, `lengths` [B] says how many count.
    """
    choices = choose(target, seeds, positions)
    ordinals = torch.arange(draft_tokens.shape[1], device=target.device)
    starts = first_rows(lengths)
    rows = starts[:, None] + torch.minimum(ordinals, lengths[:, None])
    agrees = (choices[rows] == draft_tokens) & (ordinals < lengths[:, None])
    accepted_counts = agrees.long().cumprod(-1).sum(-1)
    return Verdicts(accepted_counts, choices[starts + accepted_counts])
