"""Held-out acceptance of the heads and of the bundled draft, on text that the target wrote itself.

Prompts are the beginnings of held-out windows. At temperature 0 a proposed token is accepted if it is the target's
choice; at temperature 1 with the overlap of both distributions, which is what the token rule accepts.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import LlamaForCausalLM

from models.heads.lookahead import foresee
from models.heads.medusa import new_heads
from models.heads.text import BUNDLED, load, states, tokens, windows

PROMPTS, PROMPT, WRITTEN = 64, 48, 64
LONGEST = 4


@torch.inference_mode()
def write(target: LlamaForCausalLM, sample: bool) -> Tensor:
    """Prompts with the target's own text after them, `[prompts, tokens]`."""
    torch.manual_seed(0)
    prompts = windows(tokens("validation"), PROMPTS, PROMPT, seed=0)
    options = {"do_sample": True, "top_k": 0, "temperature": 1.0} if sample else {"do_sample": False}
    model: Any = target
    return model.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        min_new_tokens=WRITTEN,
        max_new_tokens=WRITTEN,
        pad_token_id=0,
        **options,
    )


def proposals(kind: str, target: LlamaForCausalLM, ids: Tensor, places: Tensor) -> list[Tensor]:
    """What stands in for the target's logits `[prompts, places, vocabulary]` of the 2nd, 3rd, ... token after these
    places: the 1st is known when the proposal is made."""
    if kind == "draft":
        logits = states(load("draft"), ids)[1]
        return [logits[:, places + ahead] for ahead in range(1, LONGEST + 1)]
    if kind == "medusa":
        hidden, heads = states(target, ids)[0], new_heads(target.config.hidden_size)
        heads.load_state_dict({k: v.float() for k, v in load_file(BUNDLED / kind / "model.safetensors").items()})
        return [target.lm_head(head(hidden[:, places])) for head in heads]
    ahead = load_file(BUNDLED / kind / "model.safetensors")["lookahead.weight"].float()
    found = torch.cat([foresee(target, ids, ahead, part + 1) for part in places.split(16)], 1)
    certain = states(target, ids)[1][:, places + 1]
    return [certain, *(found[:, :, i] for i in range(LONGEST - 1))]


def shares(given: Tensor, wanted: Tensor, sample: bool) -> Tensor:
    """The chance `[prompts, places]` that a token drawn from `given` is accepted."""
    if sample:
        return torch.minimum(given.softmax(-1), wanted.softmax(-1)).sum(-1)
    return (given.argmax(-1) == wanted.argmax(-1)).float()


@torch.inference_mode()
def run() -> None:
    """Prints a line for each kind and temperature: acceptance by position, tokens accepted of two and of four."""
    target = load("target")
    places = torch.arange(PROMPT, PROMPT + WRITTEN - LONGEST - 1)
    for sample in (False, True):
        ids = write(target, sample)
        wanted = states(target, ids)[1]
        for kind in ("draft", "medusa", "pass"):
            if not Path(BUNDLED / kind / "model.safetensors").exists():
                continue
            chances = [
                shares(given, wanted[:, places + ahead], sample)
                for ahead, given in enumerate(proposals(kind, target, ids, places), 1)
            ]
            accepted = torch.stack(chances).cumprod(0).mean((1, 2))
            rates = " ".join(f"{chance.mean():.3f}" for chance in chances)
            print(
                f"T = {int(sample)}  {kind:7} by position {rates}   accepted of two {accepted[:2].sum():.2f}"
                f"   of four {accepted.sum():.2f}",
                flush=True,
            )
