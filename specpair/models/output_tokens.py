"""A model that gives only some tokens of its vocabulary: the others have a logit of -inf.

So a draft with a large vocabulary multiplies by the rows of the tokens that are common. The softmax of such logits is
a distribution over these tokens, which sums to 1 before anything is drawn from it (docs/exactness.md, rule 1).
"""

from itertools import pairwise
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from specpair.errors import ModelRefusedError


class OutputTokens(nn.Module):
    """The tokens that a model gives: `token_ids` `[tokens]`, ascending."""

    def __init__(self, token_ids: Tensor, vocab_size: int):
        super().__init__()
        self.token_ids: Tensor
        self.register_buffer("token_ids", token_ids, persistent=False)
        self._vocab_size = vocab_size

    def forward(self, logits: Tensor) -> Tensor:
        """Logits `[..., vocabulary]` from those of these tokens `[..., tokens]`; -inf for all others."""
        rows = logits.new_full((*logits.shape[:-1], self._vocab_size), -torch.inf)
        return rows.index_copy_(-1, self.token_ids, logits)


class ReducedHead(nn.Module):
    """The rows of a head that belong to the tokens that are given."""

    def __init__(self, head: nn.Linear, token_ids: Tensor):
        super().__init__()
        bias = head.bias
        self.weight = nn.Parameter(head.weight.detach()[token_ids], requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias.detach()[token_ids], requires_grad=False)
        self.output_tokens = OutputTokens(token_ids, head.out_features)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits `[..., vocabulary]` for `[..., hidden]`."""
        return self.output_tokens(F.linear(hidden, self.weight, self.bias))


def reduce_head(model: PreTrainedModel, settings: Any) -> None:
    """Reduces the head to `output_token_ids` of the configuration, if it has them. Raises ModelRefusedError."""
    listed = getattr(settings, "output_token_ids", None)
    if listed is None:
        return
    head: Any = model.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        raise ModelRefusedError(f"{settings.model_type} has no head of which output_token_ids could choose rows")
    model.set_output_embeddings(ReducedHead(head, checked_ids(listed, head.out_features)))


def checked_ids(listed: Any, vocab_size: int) -> Tensor:
    """The listed ids as a tensor, int64. Raises ModelRefusedError unless they ascend within the vocabulary."""
    is_list = isinstance(listed, list) and all(type(token) is int for token in listed)
    ascends = is_list and bool(listed) and all(low < high for low, high in pairwise(listed))
    if not ascends or listed[0] < 0 or listed[-1] >= vocab_size:
        raise ModelRefusedError(f"output_token_ids are not ascending ids below {vocab_size}")
    return torch.tensor(listed)


def count_parameters(model: PreTrainedModel) -> int:
    """The parameters; without the embeddings if a reduced head has rows of its own, as a pass only looks them up."""
    count = model.num_parameters()
    if isinstance(model.get_output_embeddings(), ReducedHead):
        count -= cast(nn.Embedding, model.get_input_embeddings()).weight.numel()
    return count
