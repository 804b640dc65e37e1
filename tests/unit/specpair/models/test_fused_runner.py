"""The fused runner gives the logits of transformers, whatever form its weights are packed in."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor

from specpair.errors import ModelRefusedError
from specpair.models import packed_linear
from specpair.models.fused_runner import FusedRunner
from specpair.models.fusible import computes_bfloat16
from specpair.models.load_runner import load_runner
from specpair.models.loading import load
from specpair.models.packed_linear import offers_fbgemm, pack
from specpair.models.plain_runner import PlainRunner
from specpair.models.self_check import chunked_logits, plain_logits
from tests.services import engine_config
from tests.tiny_models import load_plain, make_model

KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama_untied": {"tie_word_embeddings": False, "num_key_value_heads": 4},
    "llama_yarn": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0,
                                       "original_max_position_embeddings": 64}},
    "mistral": {},
    "qwen2": {},
    "qwen2_sliding": {},
    "qwen3": {},
}  # fmt: skip


def tiny(folder: Path, kind: str) -> Path:
    architecture = kind if kind.startswith("qwen2") else kind.split("_")[0]
    return with_biases(make_model(folder, architecture, **KINDS[kind]))


def with_biases(folder: Path) -> Path:
    """The model with random biases where it has any, which are zero in a fresh one."""
    model = load_plain(folder)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(generator=torch.Generator().manual_seed(3))
    model.save_pretrained(folder)
    return folder


def ids(length: int = 24) -> Tensor:
    return torch.randint(64, (2, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["contiguous", "paged"])
@pytest.mark.parametrize("least_reordered", [0, 10**9], ids=["reordered", "plain weights"])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers(
    kind: str, least_reordered: int, cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In uneven chunks of two sequences, with a rollback; float32 weights take oneDNN's form where they are packed."""
    monkeypatch.setattr(packed_linear, "LEAST_REORDERED", least_reordered)
    config = engine_config(tiny(tmp_path, kind), cache=cache, runner="fused")
    _, runner = load_runner(config)
    assert isinstance(runner, FusedRunner)
    expected = torch.stack([plain_logits(load(config), row) for row in ids()])
    assert torch.allclose(chunked_logits(runner, ids()), expected, atol=2e-4)


@pytest.mark.skipif(not offers_fbgemm(), reason="FBGEMM is for x86")
@pytest.mark.parametrize("is_gone", [False, True], ids=["functions", "operators"])
def test_weights_of_16_bits_are_multiplied_in_32(
    is_gone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bfloat16 checkpoint served in float32 is packed in half precision and stays the same model."""
    if is_gone:
        monkeypatch.delattr(torch, "fbgemm_linear_fp16_weight_fp32_activation")
    folder = with_biases(make_model(tmp_path / "wide", "qwen2"))
    hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(tmp_path / "narrow")
    config = engine_config(tmp_path / "narrow", runner="fused")
    _, runner = load_runner(config)
    expected = torch.stack([plain_logits(load(config), row) for row in ids()])
    assert torch.allclose(chunked_logits(runner, ids()), expected, atol=2e-4)


@pytest.mark.skipif(not offers_fbgemm(), reason="FBGEMM is for x86")
@pytest.mark.parametrize("size", [1e-30, 1e-4, 1.0, 3e4, 1e30])
def test_half_precision_loses_nothing_of_bfloat16(size: float) -> None:
    """Any range of weights: a power of two moves it. The product is as good as float32 can be."""
    weight = (torch.randn(48, 32, generator=torch.Generator().manual_seed(0)) * size).bfloat16().float()
    x = torch.randn(5, 32, generator=torch.Generator().manual_seed(1))
    linear = pack(weight)
    assert linear.scale != 1.0
    actual = linear(x).double() * linear.scale
    exact = x.double() @ weight.double().T
    bound = 32 * 2.0**-24 * (x.double().abs() @ weight.double().abs().T)
    assert bool(((actual - exact).abs() <= bound).all())


def test_weights_of_32_bits_keep_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_linear, "LEAST_REORDERED", 0)
    weight = torch.randn(48, 32, generator=torch.Generator().manual_seed(0))
    x = torch.randn(5, 32, generator=torch.Generator().manual_seed(1))
    linear = pack(weight)
    bound = 32 * 2.0**-24 * (x.double().abs() @ weight.double().abs().T)
    assert bool(((linear(x).double() * linear.scale - x.double() @ weight.double().T).abs() <= bound).all())


def test_what_is_not_known_runs_by_transformers(tmp_path: Path) -> None:
    folder = make_model(tmp_path, "gpt2")
    assert type(load_runner(engine_config(folder))[1]) is PlainRunner
    with pytest.raises(ModelRefusedError, match=r"--runner fused does not support GPT2LMHeadModel in .* on cpu"):
        load_runner(engine_config(folder, runner="fused"))


def test_an_output_bias_runs_by_transformers(tmp_path: Path) -> None:
    """Llama's `attention_bias` gives the output projection one as well."""
    folder = with_biases(make_model(tmp_path, attention_bias=True))
    assert type(load_runner(engine_config(folder))[1]) is PlainRunner


def test_plain_means_transformers(tmp_path: Path) -> None:
    assert type(load_runner(engine_config(make_model(tmp_path), runner="plain"))[1]) is PlainRunner


@pytest.mark.skipif(not computes_bfloat16(torch.device("cpu")), reason="this processor has no units for bf16")
@pytest.mark.parametrize("cache", ["contiguous", "paged"])
@pytest.mark.parametrize("kind", KINDS)
def test_in_bf16_it_is_closer_to_the_model_than_transformers_in_bf16(kind: str, cache: str, tmp_path: Path) -> None:
    """The model itself is its float32 form: what is stored as bf16, computed exactly."""
    folder = tiny(tmp_path / "wide", kind)
    hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(tmp_path / "narrow")
    config = engine_config(tmp_path / "narrow", dtype="bfloat16", cache=cache, runner="fused")
    _, runner = load_runner(config)
    assert isinstance(runner, FusedRunner)
    exact = load(engine_config(tmp_path / "narrow", dtype="float32"))
    expected = torch.stack([plain_logits(exact, row) for row in ids()])
    theirs = torch.stack([plain_logits(load(config), row) for row in ids()])
    ours = chunked_logits(runner, ids())
    assert (ours - expected).pow(2).mean() < 1.2 * (theirs - expected).pow(2).mean()
    assert (ours - expected).abs().max() < 0.05 * expected.abs().max()
