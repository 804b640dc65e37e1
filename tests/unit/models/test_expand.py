"""An expansion computes what its source computes, at the cost of its own size."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from models.expand import __main__ as script
from models.expand import folder as storing
from models.expand import layout as laying
from models.expand import recipe as writing
from models.expand import weights as growing
from models.expand.layout import NORMS, Layout, choose_copies, expanded_config, lay_out
from models.expand.recipe import BUNDLED, expanded_target, make
from models.expand.shape import PRESETS, ExpansionError, Shape, is_power_of_two, shape_of
from models.expand.weights import expand
from specpair.models.load_runner import load_runner
from tests.services import engine_config
from tests.tiny_models import NO_TOKENS, SHAPE, generate_greedily, load_plain, make_model

# The source has 3 layers of width 32 with 48 units, 4 heads on 2 key-value heads, and 64 tokens.
GROWTHS: dict[str, dict[str, int]] = {
    "nothing": {},
    "two copies": {"hidden_size": 64},
    "half the norm": {"hidden_size": 128},
    "no round factor": {"hidden_size": 48},
    "depth": {"num_hidden_layers": 5},
    "feed-forward": {"intermediate_size": 100},
    "larger groups": {"num_attention_heads": 8, "hidden_size": 64},
    "more groups": {"num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 64},
    "smaller groups": {"num_attention_heads": 8, "num_key_value_heads": 8, "hidden_size": 64},
    "tokens": {"vocab_size": 100, "hidden_size": 64},
    "all": {
        "num_hidden_layers": 5,
        "hidden_size": 96,
        "intermediate_size": 100,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "vocab_size": 100,
    },
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama without groups": ("llama", {"num_key_value_heads": 4}),
    "llama with one group": ("llama", {"num_key_value_heads": 1}),
    "llama, tied": ("llama", {"tie_word_embeddings": True}),
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "qwen2": ("qwen2", {}),
    "qwen2, sliding": ("qwen2_sliding", {}),
    "qwen3": ("qwen3", {}),
}
TINY = Shape(**{name: SHAPE[name] for name in Shape.__dataclass_fields__ if name in SHAPE})
PROMPT = [5, 60, 3, 17, 17, 42, 8, 1, 33]
# Larger than that of any model in use, so that an eps that is a little wrong shows.
EPS = 0.01


def source_model(folder: Path, kind: str = "llama") -> Path:
    """A model none of whose norms and biases is trivial."""
    name, changes = KINDS[kind]
    make_model(folder, name, rms_norm_eps=EPS, **changes)
    model = load_plain(folder)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(folder)
    return folder


def grown(**sizes: int) -> Shape:
    return replace(TINY, **sizes)


@torch.inference_mode()
def logits(model: Any, prompt: list[int] = PROMPT) -> Tensor:
    return model(torch.tensor([prompt]), use_cache=False).logits[0]


def expansion_in_memory(source: Path, shape: Shape, **options: Any) -> Any:
    """The model as the pure functions give it, every weight of it loaded by name."""
    config = AutoConfig.from_pretrained(source)
    weights = dict(expand(load_plain(source).state_dict(), config, shape, **options))
    model = AutoModelForCausalLM.from_config(
        expanded_config(config, shape), dtype=torch.float32, attn_implementation="eager"
    )
    if config.tie_word_embeddings:
        assert "lm_head.weight" not in weights
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    cast(torch.nn.Module, model).load_state_dict(weights)
    return model.eval()


@pytest.mark.few_cases(22)
@pytest.mark.parametrize("growth", GROWTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_function_is_preserved(kind: str, growth: str, tmp_path: Path) -> None:
    source = source_model(tmp_path, kind)
    shape = grown(**GROWTHS[growth]) if kind != "llama without groups" else without_groups(GROWTHS[growth])
    model = expansion_in_memory(source, shape)
    reference = load_plain(source)
    torch.testing.assert_close(logits(model)[:, :64], logits(reference), rtol=0, atol=1e-4)
    assert generate_greedily(model, PROMPT, 10) == generate_greedily(reference, PROMPT, 10)


def without_groups(sizes: dict[str, int]) -> Shape:
    """A key-value head for each query head, which a source without groups needs."""
    heads = sizes.get("num_attention_heads", SHAPE["num_attention_heads"])
    return grown(**sizes | {"num_key_value_heads": heads})


def test_new_tokens_have_probability_zero(tmp_path: Path) -> None:
    for kind in ("llama", "llama, tied"):
        model = expansion_in_memory(source_model(tmp_path, kind), grown(**GROWTHS["tokens"]))
        found = logits(model)
        assert found.shape[-1] == 100 and found.isfinite().all()
        assert found[:, 64:].max() < -1e9
        assert found.double().softmax(-1)[:, 64:].max() == 0
        assert logits(model, [5, 99, 3]).isfinite().all()  # as drafted by a draft that knows no better


def test_nothing_new_is_zero_but_what_must_be(tmp_path: Path) -> None:
    """Every projection is filled, new layers included; only what writes to the residual stream holds back."""
    source = source_model(tmp_path)
    shape = grown(**GROWTHS["all"])
    model = expansion_in_memory(source, replace(shape, vocab_size=None))
    for name, weight in model.named_parameters():
        if any(part in name for part in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "lm_head")):
            assert (weight == 0).float().mean() < 0.001, name
    first, last = model.model.layers[0], model.model.layers[-1]
    assert (first.self_attn.o_proj.weight != 0).sum() == 3 * 32 * 32
    assert (first.mlp.down_proj.weight != 0).sum() == 3 * 32 * 48
    assert not last.self_attn.o_proj.weight.any() and not last.mlp.down_proj.weight.any()
    assert last.input_layernorm.weight.all()


def test_old_heads_keep_their_keys() -> None:
    config = AutoConfig.for_model("llama", **SHAPE, **NO_TOKENS)
    axes = lay_out(config, grown(num_attention_heads=12, num_key_value_heads=4, hidden_size=96)).axes
    query, key = axes["query"], axes["key"]
    assert (query.places[0][::8] // 8).tolist() == [0, 1, 3, 4]  # groups of 2 in groups of 3
    assert [(place[::8] // 8).tolist() for place in key.places] == [[0, 1]]
    axes = lay_out(config, grown(num_attention_heads=8, num_key_value_heads=8, hidden_size=64)).axes
    assert (axes["query"].places[0][::8] // 8).tolist() == [0, 1, 2, 3]
    assert [(place[::8] // 8).tolist() for place in axes["key"].places] == [[0, 2], [1, 3]]  # each key twice


@pytest.mark.parametrize(
    ("old", "new", "room", "copies"),
    [(256, 768, 768, 3), (256, 1024, 1024, 1), (256, 2048, 2047, 2), (256, 640, 640, 1)],
)
def test_copies_make_the_factor_a_power_of_two(old: int, new: int, room: int, copies: int) -> None:
    assert choose_copies(old, room, new) == copies


def test_bfloat16_rounds_nothing(tmp_path: Path) -> None:
    """A bf16 source, widened by 2 and by 3, stored in bf16: the same numbers, so the same logits in float32."""
    source = source_model(tmp_path)
    model = load_plain(source).to(torch.bfloat16)
    model.save_pretrained(source)
    for width in (64, 96, 128):
        expansion = expansion_in_memory(source, grown(hidden_size=width), dtype=torch.bfloat16)
        torch.testing.assert_close(logits(expansion), logits(load_plain(source)), rtol=0, atol=1e-4)


def test_written_expansion_loads_and_says_what_it_is(tmp_path: Path) -> None:
    source = source_model(tmp_path / "source")
    output = tmp_path / "output"
    recipe = make(source, grown(**GROWTHS["all"]), output)
    model = load_plain(output)
    assert model.num_parameters() == recipe["parameters"]
    assert recipe["bytes"] == 4 * recipe["parameters"]
    assert recipe["largest_logit_difference"] < 1e-4
    assert generate_greedily(model, PROMPT, 10) == generate_greedily(load_plain(source), PROMPT, 10)
    assert "same distribution as `source`" in (output / "README.md").read_text()
    assert [path.name for path in tmp_path.iterdir() if path not in (source, output)] == []


def test_written_expansion_is_served(tmp_path: Path) -> None:
    """The engine takes it, and its own check at load agrees."""
    make(source_model(tmp_path / "source"), grown(**GROWTHS["all"]), tmp_path / "output", dtype="float32")
    loaded, _ = load_runner(engine_config(tmp_path / "output"))
    assert loaded.vocab_size == 100


def test_large_weights_are_written_in_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_model(tmp_path / "source")
    monkeypatch.setattr(storing, "SHARD_BYTES", 50_000)
    recipe = make(source, grown(hidden_size=64), tmp_path / "output")
    files = sorted((tmp_path / "output").glob("*.safetensors"))
    assert len(files) > 3
    assert all(file.stat().st_size < 60_000 for file in files)
    index = json.loads((tmp_path / "output" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == recipe["bytes"] == 4 * load_plain(tmp_path / "output").num_parameters()
    # A source in shards is read as well.
    again = make(tmp_path / "output", grown(hidden_size=128), tmp_path / "again")
    assert again["largest_logit_difference"] < 1e-4


def test_it_is_written_once(tmp_path: Path) -> None:
    """Again only when the source, the shape or the seed has changed."""
    source, output = source_model(tmp_path / "source"), tmp_path / "output"
    weights = output / "model.safetensors"

    def written(**options: Any) -> int:
        make(source, grown(hidden_size=64), output, **options)
        return weights.stat().st_ino

    first = written()
    assert written() == first
    assert (second := written(seed=1)) != first
    model = load_plain(source)
    model.model.norm.weight.data.mul_(2)
    model.save_pretrained(source)
    assert written(seed=1) != second


def without_norm_scale(layout: Layout) -> Layout:
    return replace(layout, norm_scale=1.0)


def with_the_old_eps(layout: Layout) -> Layout:
    return replace(layout, eps=EPS)


def without_query_scale(layout: Layout) -> Layout:
    return replace(layout, scaled=NORMS)


def with_keys_moved(layout: Layout) -> Layout:
    key = layout.axes["key"]
    return replace(layout, axes=layout.axes | {"key": key._replace(places=[key.places[0] + 8])})


BREAKS = [without_norm_scale, with_the_old_eps, without_query_scale, with_keys_moved]


@pytest.mark.parametrize("broken", BREAKS)
def test_a_wrong_expansion_is_noticed_and_not_kept(
    broken: Callable[[Layout], Layout], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = source_model(tmp_path / "source", "qwen3"), tmp_path / "output"
    for module in (laying, growing, writing):
        monkeypatch.setattr(module, "lay_out", lambda *arguments: broken(lay_out(*arguments)))
    shape = grown(hidden_size=80, num_attention_heads=8, num_key_value_heads=4, vocab_size=100)
    with pytest.raises(ExpansionError, match="computes something else"):
        make(source, shape, output)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_new_token_with_probability_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "BANISHMENT", 1.0)
    with pytest.raises(ExpansionError, match="new tokens have the probability 0"):
        make(source_model(tmp_path / "source"), grown(**GROWTHS["tokens"]), tmp_path / "output")


REFUSED: dict[str, tuple[Shape, str]] = {
    "smaller": (grown(hidden_size=16), "hidden_size is 16, less than the source's 32"),
    "fewer tokens": (grown(vocab_size=10), "vocab_size is 10, less than the source's 64"),
    "uneven groups": (grown(num_attention_heads=5), "5 heads cannot share 2 key-value heads evenly"),
    "no room for tokens": (grown(vocab_size=100), "hidden_size must be above 32"),
    "refused by the library": (grown(hidden_size=50), "llama refuses this shape"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_impossible_shapes_are_refused(case: str, tmp_path: Path) -> None:
    shape, reason = REFUSED[case]
    config = AutoConfig.from_pretrained(source_model(tmp_path))
    with pytest.raises(ExpansionError, match=reason):
        expanded_config(config, shape)


def test_groups_that_do_not_fit_are_refused() -> None:
    config = AutoConfig.for_model("llama", **SHAPE | {"num_attention_heads": 8}, **NO_TOKENS)
    with pytest.raises(ExpansionError, match="2 groups of 4 heads do not fit into 3 of 3"):
        lay_out(config, grown(num_attention_heads=9, num_key_value_heads=3))


def test_other_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExpansionError, match="gemma2 models cannot be expanded"):
        make(make_model(tmp_path / "source", "gemma2"), grown(hidden_size=64), tmp_path / "output")
    with pytest.raises(ExpansionError, match="no folder with a model"):
        make(tmp_path / "nothing", grown(hidden_size=64), tmp_path / "output")


def test_bfloat16_is_refused_where_it_would_round(tmp_path: Path) -> None:
    source = source_model(tmp_path / "source")
    with pytest.raises(ExpansionError, match=r"0.8165 would be rounded in bfloat16.* a multiple of 32"):
        make(source, grown(hidden_size=48), tmp_path / "output", dtype="bfloat16")


def test_a_foreign_folder_is_not_overwritten(tmp_path: Path) -> None:
    source = source_model(tmp_path / "source")
    with pytest.raises(ExpansionError, match="it is not overwritten"):
        make(source, grown(hidden_size=64), source)


def test_expanded_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundled target with its tokenizer, under the names that the bench asks for."""
    small = Shape(
        num_hidden_layers=7, hidden_size=1024, intermediate_size=720, num_attention_heads=8, num_key_value_heads=4
    )
    monkeypatch.setattr(writing, "WORK", tmp_path)
    monkeypatch.setitem(PRESETS, "100M", small)
    folder = expanded_target("100M", "bfloat16", vocab_size=4100)
    assert {tensor.dtype for tensor in load_file(folder / "model.safetensors").values()} == {torch.bfloat16}
    assert AutoConfig.from_pretrained(folder).dtype is torch.bfloat16
    assert AutoConfig.from_pretrained(expanded_target("100M")).dtype is torch.float32
    assert folder == tmp_path / "target-100m-v4100-bfloat16"
    assert (folder / "tokenizer.json").read_bytes() == (BUNDLED / "target" / "tokenizer.json").read_bytes()
    assert shape_of(AutoConfig.from_pretrained(folder)) == replace(small, vocab_size=4100)


def test_presets_hold_what_they_are_called() -> None:
    config = AutoConfig.from_pretrained(BUNDLED / "target")
    counts = {}
    for name, shape in PRESETS.items():
        with torch.device("meta"):
            counts[name] = AutoModelForCausalLM.from_config(expanded_config(config, shape)).num_parameters() / 1e6
        assert is_power_of_two(lay_out(config, shape).norm_scale)
    assert {name: round(count) for name, count in counts.items()} == {"100M": 109, "300M": 313, "1B": 982, "3B": 2831}


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = source_model(tmp_path / "source"), tmp_path / "output"

    def run(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["expand", "--source", str(source), "--output", str(output), *arguments])
        script.main()

    run("--layers", "4", "--hidden-size", "64")
    assert f"{output}: 0.1 M parameters" in capsys.readouterr().out
    made = AutoConfig.from_pretrained(output)
    assert (made.num_hidden_layers, made.hidden_size, made.intermediate_size) == (4, 64, 48)
    with pytest.raises(SystemExit, match="error: hidden_size is 8"):
        run("--hidden-size", "8")
