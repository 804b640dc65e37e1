"""What cannot be divided is refused, by name."""

from typing import Any

import pytest
from transformers import T5Config

from specpair.errors import ModelRefusedError
from specpair.sharding.refusals import refuse_undivided
from tests.tiny_models import CONFIGS

DIVIDED = ("llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3")


def settings(kind: str, **changes: Any) -> Any:
    config_class, values = CONFIGS[kind]
    return config_class(**{**values, **changes})


@pytest.mark.parametrize("kind", DIVIDED)
def test_two_ranks_share_two_key_heads(kind: str) -> None:
    refuse_undivided(settings(kind), 2)


@pytest.mark.parametrize(
    ("size", "changes", "message"),
    [
        (4, {}, "llama has 2 key heads, which 4 ranks cannot share evenly"),
        (3, {}, "llama has 4 attention heads, which 3 ranks cannot share evenly"),
        (
            2,
            {"output_token_ids": [1, 2]},
            "models with output_token_ids cannot be served with --tensor-parallel-size 2",
        ),
        (2, {"quantization_config": {"quant_method": "fp8"}}, "quantised checkpoints cannot be served"),
    ],
)
def test_what_does_not_divide_is_refused(size: int, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelRefusedError, match=message):
        refuse_undivided(settings("llama", **changes), size)


def test_a_model_without_a_plan_is_refused() -> None:
    with pytest.raises(ModelRefusedError, match="gpt2 has no plan of how to divide its layers"):
        refuse_undivided(settings("gpt2"), 2)
    with pytest.raises(ModelRefusedError, match="encoder-decoder models, such as t5, cannot be served"):
        refuse_undivided(T5Config(), 2)


def test_a_plan_that_nobody_has_looked_at_is_refused() -> None:
    divided = settings("llama")
    divided.base_model_tp_plan = {"layers.*.mlp.experts": "moe_tp_experts"}
    with pytest.raises(ModelRefusedError, match="divides layers by moe_tp_experts"):
        refuse_undivided(divided, 2)
