"""How far a head's distributions are from the target's."""

import torch.nn.functional as F
from torch import Tensor


def distance(logits: Tensor, wanted: Tensor, done: float) -> Tensor:
    """Kullback-Leibler divergence, and mostly total variation in the second half of the run: 1 - TV is the share that
    the token rule accepts. Both `[tokens, vocabulary]`; `done` in [0, 1]."""
    given, right = F.log_softmax(logits, -1), F.log_softmax(wanted, -1)
    divergence = F.kl_div(given, right, reduction="batchmean", log_target=True)
    if done < 0.5:
        return divergence
    return 0.1 * divergence + 0.5 * (given.exp() - right.exp()).abs().sum(-1).mean()


def rate(done: float) -> float:
    """The factor of the learning rate: a short warm-up, then down to zero."""
    return min(done / 0.03 + 0.02, 1.0) * (1 - done) ** 0.7
