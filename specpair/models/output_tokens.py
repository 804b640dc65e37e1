"""A model that gives only some tokens of its vocabulary: the others have a logit of -inf.

So a draft with a large vocabulary multiplies by the rows of the tokens that are common. The softmax of such logits is
a distribution over these tokens, which sums to 1 before anything is drawn from it (docs/exactness.md, rule 1).
"""

from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specpair.errors import ModelRefusedError

NAME = "output_tokens"


class OutputTokens(nn.Module):
    """The tokens that a model gives: `token_ids` `[tokens]`, ascending."""

    def __init__(self, token_ids: Tensor, vocab_size: int):
        super().__init__()
        self.token_ids: Tensor
        self.register_buffer("token_ids", token_ids, persistent=False)
        self._vocab_size = vocab_size

    def name(self, places: list[int]) -> list[int]:
        """The tokens at these places among those that are given."""
        return self.token_ids[places].tolist()

    def forward(self, logits: Tensor) -> Tensor:
        """Logits `[..., vocabulary]` from those of these tokens `[..., tokens]`; -inf for all others."""
        rows = logits.new_full((*logits.shape[:-1], self._vocab_size), -torch.inf)
        return rows.index_copy_(-1, self.token_ids, logits)


def reduce_head(model: PreTrainedModel, settings: Any) -> None:
    """Reduces the head to `output_token_ids` of the configuration, if it has them. Raises ModelRefusedError.

    The new head is a linear layer like any other, with fewer rows. Whoever calls it gets rows of full width, by a hook;
    whoever takes its weights finds in `output_tokens_of` what spreads the products.
    """
    listed = getattr(settings, "output_token_ids", None)
    if listed is None:
        return
    head: Any = model.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        raise ModelRefusedError(f"{settings.model_type} has no head of which output_token_ids could choose rows")
    token_ids = checked_ids(listed, head.out_features)
    reduced = nn.Linear(head.in_features, len(token_ids), bias=head.bias is not None, device="meta")
    reduced.weight = nn.Parameter(head.weight.detach()[token_ids], requires_grad=False)
    if head.bias is not None:
        reduced.bias = nn.Parameter(head.bias.detach()[token_ids], requires_grad=False)
    output_tokens = OutputTokens(token_ids, head.out_features)
    reduced.add_module(NAME, output_tokens)
    reduced.register_forward_hook(lambda module, inputs, logits: output_tokens(logits))
    model.set_output_embeddings(reduced)
    model.config.tie_word_embeddings = False


def output_tokens_of(head: Any) -> OutputTokens | None:
    """The tokens that a head gives; None if it gives all."""
    return getattr(head, NAME, None)


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
    if output_tokens_of(model.get_output_embeddings()) is not None:
        count -= cast(nn.Embedding, model.get_input_embeddings()).weight.numel()
    return count
