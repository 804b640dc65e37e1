"""Weights to begin with: the target's last feed-forward block behind a linear guess of what enters it.

A short training hardly moves random weights, so the head begins as the best linear one. The state that it is given is
what leaves the target's last layer. Nine of its attention heads look at their own place alone. Their values are the
ridge regression from that state and the next token's embedding to what enters the target's last feed-forward block one
token later. That block and the final norm, copied, make of it what the target would. The other attention heads begin
with queries and keys of the target's last layer, and give nothing at first.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from models.eagle.features import KEPT, FeatureStore
from models.eagle.head import Head
from models.smollm2.batches import Talk

SHARPNESS = 6.0
"""Of the attention to the own place."""
RIDGE = 30.0
GAIN = 0.5
"""Of the final norm: the head is less sure than the target."""


def begin(head: Head, target: LlamaForCausalLM, store: FeatureStore, talks: Sequence[Talk]) -> None:
    """Sets the weights of a head whose features end with what leaves the target's last layer; `target` in float32."""
    width = head.config.width
    layer: Any = target.model.layers[-1]
    own_layer: Any = head.layers[0]
    joined, entering = examples(head, target, store, talks)
    scale = entering.pow(2).mean().sqrt()
    wanted = entering / scale - joined[:, width:]
    gram = joined.T @ joined
    gram.diagonal().add_(RIDGE)
    values = torch.linalg.solve(gram, joined.T @ wanted).T
    constant = torch.linalg.solve(gram, joined.sum(0))
    print(f"from {len(joined)} tokens: {explained(joined, values, wanted):.3f} of the change explained")
    with torch.no_grad():
        random_weights(head)
        head.fc.weight.zero_()
        head.fc.weight[:, -width:].copy_(torch.eye(width))
        own = width // head.config.head_size
        attend_to_itself(head, constant, own)
        look_back(head, layer, own)
        attention, mlp = own_layer.self_attn, own_layer.mlp
        attention.v_proj.weight[:width].copy_(values)
        attention.o_proj.weight.zero_()
        attention.o_proj.weight[:, :width].copy_(torch.eye(width))
        for name in ("gate_proj", "up_proj", "down_proj"):
            getattr(mlp, name).weight.copy_(getattr(layer.mlp, name).weight)
        mlp.down_proj.weight.div_(scale)
        own_layer.post_attention_layernorm.weight.copy_(layer.post_attention_layernorm.weight)
        head.norm.weight.copy_(target.model.norm.weight * GAIN)


def explained(joined: Tensor, values: Tensor, wanted: Tensor) -> float:
    return float(1 - (joined @ values.T - wanted).pow(2).sum() / wanted.pow(2).sum())


def random_weights(head: Head) -> None:
    for parameter in head.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
        else:
            nn.init.ones_(parameter)


@torch.inference_mode()
def examples(head: Head, target: LlamaForCausalLM, store: FeatureStore, talks: Sequence[Talk]) -> tuple[Tensor, Tensor]:
    """For each token before an answer's: embedding and last state before it, `[n, 2 * width]`, both of size 1, and
    what enters the target's last feed-forward block at it, `[n, width]`."""
    joined, entering = [], []
    for talk in talks:
        features = store.read([talk])[0].float()[:-1]
        token_ids = torch.from_numpy(talk.token_ids.astype("int64"))
        found = into_last_block(target, features[:, -2], KEPT[-2])
        places = torch.from_numpy(talk.places)
        places = places[places < len(features)]
        embedded = F.embedding(token_ids[places], head.embeddings).float()
        width = embedded.shape[1:]
        joined.append(torch.cat([F.rms_norm(part, width) for part in (embedded, features[places - 1, -1])], dim=1))
        entering.append(found[places])
    return torch.cat(joined), torch.cat(entering)


def into_last_block(target: LlamaForCausalLM, states: Tensor, first: int) -> Tensor:
    """The residual stream `[tokens, width]` before the last layer's feed-forward block, from what enters `first`."""
    x, count = states[None], len(states)
    rotary = target.model.rotary_emb(x, torch.arange(count)[None])
    mask = torch.full((count, count), -torch.inf).triu(1)[None, None]
    for layer in target.model.layers[first:-1]:
        x = layer(x, attention_mask=mask, position_embeddings=rotary)
    last: Any = target.model.layers[-1]
    mixed, _ = last.self_attn(last.input_layernorm(x), position_embeddings=rotary, attention_mask=mask)
    return (x + mixed)[0]


def attend_to_itself(head: Head, constant: Tensor, count: int) -> None:
    """Queries and keys of the first `count` heads: the same for every token, since `constant` times a pair is about 1;
    turned by their positions they agree best with themselves."""
    size = head.config.head_size
    own_layer: Any = head.layers[0]
    attention = own_layer.self_attn
    pattern = torch.zeros(size)
    pattern[:3] = (SHARPNESS * size**0.5) ** 0.5  # the fastest three of the rotary embedding's frequencies
    rows = torch.outer(pattern.repeat(count), constant)
    for projection in (attention.q_proj, attention.k_proj):
        projection.weight[: len(rows)].copy_(rows)


def look_back(head: Head, layer: Any, count: int) -> None:
    """Queries and keys of the heads after the first `count`: the target's layer's, each of its key heads once."""
    config = head.config
    own_layer: Any = head.layers[0]
    attention = own_layer.self_attn
    start, width = count * config.head_size, config.width
    theirs, gain = layer.self_attn, layer.input_layernorm.weight
    groups = theirs.q_proj.weight.shape[0] // theirs.k_proj.weight.shape[0]
    for mine, weight, step in (
        (attention.q_proj, theirs.q_proj.weight, groups),
        (attention.k_proj, theirs.k_proj.weight, 1),
    ):
        by_head = weight.view(-1, config.head_size, width)[::step].flatten(0, 1) * gain
        mine.weight[start:].zero_()
        rows = min(len(by_head), len(mine.weight) - start)
        mine.weight[start : start + rows, width:].copy_(by_head[:rows])
