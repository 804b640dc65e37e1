"""A model with quantised weights: another model, the same in every forward pass, and checked like any other."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from specpair.errors import ModelRefusedError
from specpair.models import fused_runner, int8_linear, load_runner, native_runner, refusals
from specpair.models.aligned_runner import AlignedRunner
from specpair.models.divergence import divergence_of
from specpair.models.fused_runner import FusedRunner
from specpair.models.fusible import computes_bfloat16
from specpair.models.load_runner import describe_weights
from specpair.models.loading import load
from specpair.models.model_cache import make_cache
from specpair.models.native_runner import NativeRunner
from specpair.models.packed_linear import PackedLinear, offers_fbgemm
from specpair.models.self_check import chunked_logits, fed_in_steps, plain_logits, random_tokens, run_chunks
from specpair.models.weight_format import FORMATS, restore_stored
from specpair.native.library import native_library
from tests.services import engine_config
from tests.tiny_models import make_model
from tests.unit.specpair.models.test_fused_runner import KINDS, tiny
from tests.unit.specpair.models.test_trees import LAST, PATHS, PROMPT, after_prompt, tree_batch

pytestmark = pytest.mark.skipif(not offers_fbgemm(), reason="FBGEMM is for x86")

BUNDLED = Path(__file__).parents[4] / "models" / "bundled"
QUANTISED = ("int8", "int4")
FUSED = {"runner": "fused", "cache": "contiguous"}
WAYS = [{"runner": "fused", "cache": "paged"}, FUSED]
if (library := native_library()) is not None and library.specpair_multiplies_bytes():
    WAYS.append({"runner": "native", "cache": "contiguous"})
needs_native = pytest.mark.skipif(len(WAYS) < 3, reason="needs a C compiler and products of bytes")


@pytest.mark.few_cases(14)
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("quantization", QUANTISED)
@pytest.mark.parametrize("kind", KINDS)
def test_bits_depend_on_the_tokens_before_them_alone(
    kind: str, quantization: str, way: dict[str, str], tmp_path: Path
) -> None:
    """In uneven chunks of two sequences with a rollback, and alone in steps of three."""
    config = engine_config(tiny(tmp_path, kind), quantization=quantization, **way)
    facts, runner = load_runner.load_runner(config)
    assert facts.is_deterministic and facts.quantization == quantization
    ids = random_tokens(load(config), runner)
    alone = torch.stack([fed_in_steps(runner, row) for row in ids.tolist()])
    assert torch.equal(chunked_logits(runner, ids), alone)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS[1:], ids=str)
@pytest.mark.parametrize("quantization", QUANTISED)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_stored_weights(
    kind: str, dtype: str, quantization: str, way: dict[str, str], tmp_path: Path
) -> None:
    """And closer to them than to those of the checkpoint, where inputs have 8 bits."""
    if dtype == "bfloat16" and not computes_bfloat16(torch.device("cpu")):
        pytest.skip("this processor has no units for bf16")
    folder = tiny(tmp_path, kind)
    _, runner = load_runner.load_runner(engine_config(folder, quantization=quantization, dtype=dtype, **way))
    loaded = load(engine_config(folder, dtype=dtype))
    cast(torch.nn.Module, loaded.model).float()  # the reference computes what is stored in this type exactly
    ids = random_tokens(loaded, runner)
    actual = chunked_logits(runner, ids)
    checkpoint = torch.stack([plain_logits(loaded, row) for row in ids])
    restore_stored(loaded.model, FORMATS[quantization])
    stored = torch.stack([plain_logits(loaded, row) for row in ids])
    assert (actual - stored).abs().max() <= 0.1 * stored.abs().max()
    if way["runner"] == "native" or not int8_linear.saturates():
        assert (actual - stored).pow(2).mean() < (actual - checkpoint).pow(2).mean()


def test_attention_of_several_rows_at_once_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the last bits of other attention make steps of rounded inputs."""
    folder = make_model(tmp_path)
    monkeypatch.setattr(FusedRunner, "_plan", lambda self, batch: self.cache.plan(batch.segments, batch.parents))
    with pytest.raises(ModelRefusedError, match="cannot be served with --quantization int8"):
        load_runner.load_runner(engine_config(folder, quantization="int8", **FUSED))


def test_a_wrong_product_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference has the stored weights, so a scale that is wrong by a third is seen."""
    real = int8_linear.pack_with

    def wrong(weight: torch.Tensor, bias: torch.Tensor | None, input_steps: int) -> PackedLinear:
        return replace(real(weight, bias, input_steps), product=lambda x: real(weight, bias, input_steps)(x) * 0.66)

    monkeypatch.setattr(int8_linear, "pack_with", wrong)
    monkeypatch.setattr(int8_linear, "saturates", lambda: False)
    with pytest.raises(ModelRefusedError, match="logits through the cache differ"):
        load_runner.load_runner(engine_config(make_model(tmp_path), quantization="int8", **FUSED))


@pytest.mark.parametrize("way", WAYS[1:], ids=str)
@pytest.mark.parametrize("quantization", QUANTISED)
def test_nan_reaches_the_logits_of_its_own_sequence_alone(
    quantization: str, way: dict[str, str], tmp_path: Path
) -> None:
    """Rounding must not turn it into a number: the services look for it."""
    config = engine_config(make_model(tmp_path, tie_word_embeddings=False), quantization=quantization, **way)
    loaded = load(config)
    with torch.no_grad():
        cast(Any, loaded.model).model.embed_tokens.weight[7, 3] = float("nan")
    (kind,) = load_runner.choose_runners(config, loaded.model)
    runner = kind(loaded, make_cache(config, loaded.facts))
    poisoned, clean = run_chunks(runner, [runner.cache.open([]), runner.cache.open([])], [[5, 7, 9], [5, 6, 9]])
    assert bool(clean.isfinite().all()) and bool(poisoned[0].isfinite().all())
    assert bool(poisoned[1:].isnan().all())


def test_without_products_of_bytes_the_native_runner_is_not_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processors without VNNI and AVX2 use FBGEMM, which has other kernels for them."""
    config = engine_config(make_model(tmp_path), quantization="int8")
    model = load(config).model
    for can, kinds in ((1, [NativeRunner, FusedRunner]), (0, [FusedRunner])):
        library = SimpleNamespace(specpair_multiplies_bytes=lambda can=can: can)
        monkeypatch.setattr(native_runner, "native_library", lambda library=library: library)
        assert load_runner.choose_runners(config, model) == kinds


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("kind", ["llama", "qwen2_sliding"])
def test_rows_of_a_tree_have_the_bits_of_its_paths(kind: str, way: dict[str, str], tmp_path: Path) -> None:
    config = engine_config(make_model(tmp_path, kind), quantization="int8", **way)
    runner = load_runner.load_runner(config)[1]
    rows = runner.forward(tree_batch(runner, after_prompt(runner))).logits
    chains = [run_chunks(runner, [runner.cache.open([])], [[*PROMPT, LAST, *path]])[0][-1] for path in PATHS]
    assert torch.equal(rows, torch.stack(chains))


@needs_native
def test_the_runner_that_takes_over_has_the_bits_of_its_own_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of the first leaves rounded weights in the model; in bf16 their scales would be rounded again."""
    if not computes_bfloat16(torch.device("cpu")):
        pytest.skip("this processor has no units for bf16")
    real = load_runner.check

    def check(loaded: Any, runner: Any) -> None:
        if isinstance(runner, NativeRunner):
            raise ModelRefusedError("wrong")
        real(loaded, runner)

    monkeypatch.setattr(load_runner, "check", check)
    config = engine_config(BUNDLED / "draft", quantization="int4", dtype="bfloat16", cache="contiguous")
    second, alone = (load_runner.load_runner(one)[1] for one in (config, replace(config, runner="fused")))
    assert isinstance(second, FusedRunner)
    row = random_tokens(load(config), second)[0].tolist()
    assert torch.equal(fed_in_steps(second, row), fed_in_steps(alone, row))


def test_what_cannot_be_quantised_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = make_model(tmp_path / "gpt2", "gpt2")
    with pytest.raises(ModelRefusedError, match=r"--quantization int4 does not support GPT2LMHeadModel in .* on cpu"):
        load_runner.load_runner(engine_config(other, quantization="int4"))
    llama = make_model(tmp_path / "llama")
    with pytest.raises(ModelRefusedError, match="cannot be combined with --runner plain"):
        load_runner.load_runner(engine_config(llama, quantization="int8", runner="plain"))
    monkeypatch.setattr(refusals, "offers_fbgemm", lambda: False)
    with pytest.raises(ModelRefusedError, match="int8 needs FBGEMM"):
        load_runner.load_runner(engine_config(llama, quantization="int8"))


def test_a_quantised_model_is_deterministic_with_and_without_the_flag(tmp_path: Path) -> None:
    config = engine_config(make_model(tmp_path), quantization="int4", deterministic=True)
    facts, runner = load_runner.load_runner(config)
    assert not isinstance(runner, AlignedRunner) and facts.is_deterministic


def test_only_a_quantised_model_attends_by_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By rows takes longer: sixteen bits do without."""
    monkeypatch.delattr(fused_runner, "RowwisePlan")
    facts, _ = load_runner.load_runner(engine_config(make_model(tmp_path), **FUSED))
    assert not facts.is_deterministic and describe_weights(facts) == ""


@pytest.mark.parametrize("runner", [way["runner"] for way in WAYS[1:]])
def test_the_divergence_is_measured_and_logged(runner: str, caplog: pytest.LogCaptureFixture) -> None:
    found = {}
    for quantization in QUANTISED:
        with caplog.at_level("INFO", logger="specpair.models.load_runner"):
            facts, _ = load_runner.load_runner(
                engine_config(BUNDLED / "draft", quantization=quantization, runner=runner)
            )
        assert facts.divergence is not None and facts.divergence.token_count == 256
        assert f"{quantization} weights that diverge by {facts.divergence.mean_kl:.4f} nats" in caplog.text
        found[quantization] = facts.divergence
    assert 0 < found["int8"].mean_kl < 0.01 < found["int4"].mean_kl < 0.2
    assert found["int8"].greedy_agreement > found["int4"].greedy_agreement > 0.7


def test_without_a_tokenizer_no_divergence_is_claimed(tmp_path: Path) -> None:
    facts, _ = load_runner.load_runner(engine_config(make_model(tmp_path), quantization="int8"))
    assert facts.divergence is None and describe_weights(facts) == ", int8 weights"


def test_tokens_that_the_model_lacks_are_no_part_of_the_divergence(tmp_path: Path) -> None:
    """A tokenizer may have more tokens than the model."""
    folder = make_model(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(BUNDLED / "draft" / name, folder)
    facts, _ = load_runner.load_runner(engine_config(folder, quantization="int8"))
    assert facts.vocab_size == 64 and facts.tokenizer is not None
    assert facts.divergence is not None and 0 < facts.divergence.token_count < 256


def test_divergence_is_what_it_says() -> None:
    """Two tokens: the same, and (1/2, 1/2) against (1/4, 3/4). Tokens that never come take no part."""
    never = float("-inf")
    original = torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.5, 0.0]]).log()
    served = torch.tensor([[0.9, 0.1, 0.0], [0.25, 0.75, 0.0]]).log()
    assert original[0, 2] == never
    found = divergence_of(original, served)
    assert found.mean_kl == pytest.approx((0.5 * torch.tensor(4 / 3).log().item()) / 2, rel=1e-5)
    assert (found.greedy_agreement, found.token_count) == (0.5, 2)
