"""An EAGLE-3 head drafts as its layout says, however its sequence was fed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from specpair.caches.holding import Segment
from specpair.errors import ModelRefusedError
from specpair.models.batch import Batch
from specpair.models.fusible import computes_bfloat16
from specpair.models.headed_runner import HeadedRunner
from specpair.models.load_runner import load_runner
from specpair.models.native_headed_runner import NativeHeadedRunner
from specpair.native.library import native_library
from tests.services import engine_config
from tests.tiny_heads import OUTPUTS, make_head
from tests.tiny_models import load_plain, make_model

IDS = [5, 17, 3, 44, 8, 21, 60, 2, 33, 12, 31, 7, 50, 9, 1, 2, 3, 4, 5, 6]
STEPS = 5
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"runner": "plain"},
    "paged": {"runner": "plain", "cache": "paged"},
    "fused": {"runner": "fused"},
    "native": {"runner": "native"},
    "deterministic": {"deterministic": True},
}
KINDS: dict[str, dict[str, Any]] = {
    "borrowing": {},
    "own vocabulary": {"outputs": OUTPUTS},
    "norm before residual": {"norm_before_residual": True},
    "norm before fc": {"norm_before_fc": True},
    "norm of each layer": {"fc_norm": True, "norm_output": True},
    "more key heads": {"layer": {"num_key_value_heads": 4}, "eagle_aux_hidden_state_layer_ids": [1, 3]},
}


@torch.no_grad()
def reference(target: Path, head: Path, token_ids: list[int], count: int) -> tuple[list[int], Tensor]:
    """Tokens and logits `[count, vocabulary]` of a greedy draft after `token_ids`: everything from the beginning at
    each step, as speculators' model computes it."""
    model, fields = load_plain(target), json.loads((head / "config.json").read_text())
    tensors = load_file(head / "model.safetensors")
    features = states_of(model, token_ids[:-1], [number - 1 for number in fields["eagle_aux_hidden_state_layer_ids"]])
    weight = lambda name: tensors[f"{name}.weight"]  # noqa: E731
    eps = fields["transformer_layer_config"]["rms_norm_eps"]
    norm = lambda x, name: F.rms_norm(x, x.shape[-1:], weight(name), eps)  # noqa: E731
    if fields["fc_norm"]:
        features = [norm(part, f"fc_norm.{index}") for index, part in enumerate(features)]
    joined = torch.cat(features, -1)
    if fields["norm_before_fc"]:
        joined = norm(joined, "input_norm")
    hidden, tokens = joined @ weight("fc").T, list(token_ids)
    own = "d2t" in tensors
    embedding = weight("embed_tokens") if own else model.get_input_embeddings().weight
    output = weight("lm_head") if own else model.lm_head.weight
    found, rows = [], []
    for _ in range(count):
        last = layer(model, fields, norm, weight, embedding[tokens[1:]], hidden)[-1:]
        logits = torch.full((model.config.vocab_size,), -torch.inf)
        given = torch.arange(len(output)) + (tensors["d2t"] if own else 0)
        logits[given] = (norm(last, "norm") @ output.T)[0]
        rows.append(logits)
        found.append(int(logits.argmax()))
        tokens.append(found[-1])
        hidden = torch.cat([hidden, norm(last, "norm") if fields["norm_output"] else last])
    return found, torch.stack(rows)


def states_of(model: Any, token_ids: list[int], layers: list[int]) -> list[Tensor]:
    """What leaves these layers, `[tokens, hidden]` each."""
    found: dict[int, Tensor] = {}
    for number in layers:
        model.model.layers[number].register_forward_hook(
            lambda module, inputs, output, number=number: found.update({number: output[0]})
        )
    model(torch.tensor([token_ids]))
    return [found[number] for number in layers]


def layer(model: Any, fields: dict[str, Any], norm: Any, weight: Any, embedded: Tensor, hidden: Tensor) -> Tensor:
    """The decoder layer over pairs `[tokens, width]`, the first of which belongs to position 1."""
    shape, count = fields["transformer_layer_config"], len(hidden)
    size = shape["head_dim"]
    normed = norm(hidden, "layers.0.hidden_norm")
    both = torch.cat([norm(embedded, "layers.0.input_layernorm"), normed], -1)
    query, key, value = (
        (both @ weight(f"layers.0.self_attn.{name}_proj").T).view(count, -1, size).transpose(0, 1) for name in "qkv"
    )
    cosine, sine = model.model.rotary_emb(both, torch.arange(1, count + 1)[None])
    turned = lambda x: x * cosine + torch.cat([-x[..., size // 2 :], x[..., : size // 2]], -1) * sine  # noqa: E731
    groups = len(query) // len(key)
    keys, values = turned(key).repeat_interleave(groups, 0), value.repeat_interleave(groups, 0)
    mixed = F.scaled_dot_product_attention(turned(query), keys, values, is_causal=True)
    residual = normed if fields["norm_before_residual"] else hidden
    residual = residual + mixed.transpose(0, 1).flatten(1) @ weight("layers.0.self_attn.o_proj").T
    x = norm(residual, "layers.0.post_attention_layernorm")
    gated = F.silu(x @ weight("layers.0.mlp.gate_proj").T) * (x @ weight("layers.0.mlp.up_proj").T)
    return residual + gated @ weight("layers.0.mlp.down_proj").T


def feed(runner: HeadedRunner, holding: Any, token_ids: list[int]) -> None:
    start = holding.length
    runner.cache.append(holding, len(token_ids))
    runner.forward(Batch.of_chains([Segment(holding, start, len(token_ids))], token_ids, [1]))


def drafted(runner: HeadedRunner, holdings: list[Any], texts: list[list[int]]) -> tuple[list[list[int]], list[Tensor]]:
    run = runner.begin(holdings, [range(len(text) - 1) for text in texts], STEPS)
    newest, found, rows = [text[-1] for text in texts], [], []
    for _ in range(STEPS):
        logits = run.logits(newest, list(range(len(texts))))
        newest = logits.argmax(-1).tolist()
        found.append(newest)
        rows.append(logits)
    return [list(column) for column in zip(*found, strict=True)], list(torch.stack(rows, 1))


def load(tmp_path: Path, kind: str, way: str) -> tuple[Path, Path, HeadedRunner]:
    if way == "native" and native_library() is None:
        pytest.skip("needs a compiler")
    target, head = make_model(tmp_path / "target"), make_head(tmp_path / "head", **KINDS[kind])
    _, runner = load_runner(engine_config(target, head=str(head), **WAYS[way]))
    assert isinstance(runner, HeadedRunner)
    return target, head, runner


@pytest.mark.parametrize("way", WAYS)
def test_a_head_drafts_as_its_reference(way: str, tmp_path: Path) -> None:
    check_draft(tmp_path, "norm of each layer", way)


@pytest.mark.parametrize("way", ["fused", "native"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_head_drafts_as_its_reference(kind: str, way: str, tmp_path: Path) -> None:
    check_draft(tmp_path, kind, way)


def check_draft(tmp_path: Path, kind: str, way: str) -> None:
    """Two sequences drafted together: one fed at once, one in pieces with tokens that were rolled back."""
    target, head, runner = load(tmp_path, kind, way)
    texts = [IDS, IDS[3:15]]
    holdings = [runner.cache.open([]) for _ in texts]
    feed(runner, holdings[0], texts[0][:-1])
    for piece in (texts[1][:4], texts[1][4:5], [9, 9, 9]):
        feed(runner, holdings[1], piece)
    runner.cache.truncate_to(holdings[1], 5)
    feed(runner, holdings[1], texts[1][5:-1])
    found, rows = drafted(runner, holdings, texts)
    for text, own, logits in zip(texts, found, rows, strict=True):
        expected, expected_logits = reference(target, head, text, STEPS)
        assert own == expected
        given = expected_logits.isfinite()
        assert torch.equal(logits.isfinite(), given)
        assert torch.allclose(logits[given], expected_logits[given], atol=2e-3)


PUBLISHED = [
    "d2t",
    "embed_tokens.weight",
    "fc.weight",
    "layers.0.hidden_norm.weight",
    "layers.0.input_layernorm.weight",
    "layers.0.mlp.down_proj.weight",
    "layers.0.mlp.gate_proj.weight",
    "layers.0.mlp.up_proj.weight",
    "layers.0.post_attention_layernorm.weight",
    "layers.0.self_attn.k_proj.weight",
    "layers.0.self_attn.o_proj.weight",
    "layers.0.self_attn.q_proj.weight",
    "layers.0.self_attn.v_proj.weight",
    "lm_head.weight",
    "norm.weight",
    "t2d",
]
"""Names of the tensors of published heads with a vocabulary of their own."""


@pytest.mark.parametrize("layer", ["layers.0.", "midlayer."])
def test_a_checkpoint_with_the_published_names_drafts_as_its_reference(layer: str, tmp_path: Path) -> None:
    """Those of speculators, and those of SafeAILab. In bfloat16, and with a rotary embedding that is not the target's,
    as they come."""
    target = make_model(tmp_path / "target")
    head = make_head(tmp_path / "head", outputs=OUTPUTS, layer={"rope_theta": 500000.0, "max_position_embeddings": 64})
    whole = load_file(head / "model.safetensors")
    assert sorted(whole) == PUBLISHED
    rounded = {name: tensor.bfloat16() if tensor.is_floating_point() else tensor for name, tensor in whole.items()}
    save_file(
        {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in rounded.items()},
        head / "model.safetensors",
    )
    expected, expected_logits = reference(target, head, IDS, STEPS)
    save_file(
        {name.replace("layers.0.", layer): tensor for name, tensor in rounded.items()}, head / "model.safetensors"
    )
    _, runner = load_runner(engine_config(target, head=str(head), head_quantization="none"))
    assert isinstance(runner, HeadedRunner)
    holding = runner.cache.open([])
    feed(runner, holding, IDS[:-1])
    (found,), (logits,) = drafted(runner, [holding], [IDS])
    assert found == expected
    given = expected_logits.isfinite()
    assert torch.equal(logits.isfinite(), given)
    assert torch.allclose(logits[given], expected_logits[given], atol=2e-3)


@pytest.mark.parametrize(("stored", "kind"), [("bfloat16", "int8"), ("float32", "none")])
def test_a_file_of_16_bits_is_held_in_8_beside_float32(stored: str, kind: str, tmp_path: Path) -> None:
    library = native_library()
    if library is None or not library.specpair_multiplies_bytes():
        pytest.skip("needs a compiler, and products of bytes")
    target, head = make_model(tmp_path / "target"), make_head(tmp_path / "head")
    file = head / "model.safetensors"
    save_file({name: tensor.to(getattr(torch, stored)) for name, tensor in load_file(file).items()}, file)
    logits: dict[str, Tensor] = {}
    for quantization in ("auto", "int8", "none"):
        config = engine_config(target, head=str(head), head_quantization=quantization, runner="native", dtype="float32")
        _, runner = load_runner(config)
        assert isinstance(runner, HeadedRunner)
        holding = runner.cache.open([])
        feed(runner, holding, IDS[:-1])
        logits[quantization] = drafted(runner, [holding], [IDS])[1][0]
    assert [name for name in ("int8", "none") if torch.equal(logits[name], logits["auto"])] == [kind]


@pytest.mark.parametrize("way", ["paged", "fused", "native"])
def test_a_fork_and_a_found_prefix_draft_the_same(way: str, tmp_path: Path) -> None:
    target, head, runner = load(tmp_path, "borrowing", way)
    holding = runner.cache.open([])
    feed(runner, holding, IDS[:-1])
    fork = runner.cache.fork(holding, 10)
    feed(runner, fork, [11, 13])
    runner.cache.keep(holding, IDS[:-1])
    runner.cache.free(holding)
    again = runner.cache.open(IDS)
    assert again.length > 0
    runner.cache.truncate_to(again, min(again.length, 12))
    feed(runner, again, IDS[again.length : -1])
    found, _ = drafted(runner, [fork, again], [[*IDS[:10], 11, 13, 4], IDS])
    assert found == [reference(target, head, text, STEPS)[0] for text in ([*IDS[:10], 11, 13, 4], IDS)]


@pytest.mark.parametrize("way", ["fused", "native"])
def test_a_tree_leaves_what_its_path_would_have_left(way: str, tmp_path: Path) -> None:
    target, head, runner = load(tmp_path, "borrowing", way)
    holding = runner.cache.open([])
    feed(runner, holding, IDS[:8])
    runner.cache.append(holding, 5)
    tree = Batch.of_trees([Segment(holding, 8, 5)], [IDS[8], 1, IDS[9], 4, IDS[10]], [5], [None, 0, 0, 1, 2])
    runner.forward(tree)
    runner.cache.keep_path(holding, 8, [0, 2, 4])
    (found,), (logits,) = drafted(runner, [holding], [IDS[:12]])
    expected, expected_logits = reference(target, head, IDS[:12], STEPS)
    assert found == expected
    assert torch.allclose(logits, expected_logits, atol=2e-3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_compiled_first_step_writes_what_the_pass_that_fed_its_token_kept(dtype: str, tmp_path: Path) -> None:
    """The next pass leaves a token out that is in the cache already."""
    if native_library() is None or (dtype == "bfloat16" and not computes_bfloat16(torch.device("cpu"))):
        pytest.skip("needs a compiler, and units for bf16")
    target, head = make_model(tmp_path / "target"), make_head(tmp_path / "head")
    _, runner = load_runner(engine_config(target, head=str(head), runner="native", dtype=dtype))
    assert isinstance(runner, NativeHeadedRunner)
    holding, last = runner.cache.open([]), len(IDS) - 1
    feed(runner, holding, IDS)
    access = runner.cache.access([Segment(holding, 0, len(IDS))])
    kept = [part.clone() for part in access.read(runner.attention, 0)]
    runner.begin([holding], [range(last)], 1).logits([IDS[-1]], [0])
    assert all(torch.equal(now, then) for now, then in zip(access.read(runner.attention, 0), kept, strict=True))
    runner.begin([holding], [range(last)], 1).logits([IDS[-1] + 1], [0])
    assert not torch.equal(access.read(runner.attention, 0)[0], kept[0])


def test_a_head_that_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    target = make_model(tmp_path / "target")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"speculators_model_type": "dflash"}, "dflash"),
        ({"layer": {"num_hidden_layers": 2}}, "num_hidden_layers 2"),
        ({"layer": {"model_type": "qwen3"}}, "model_type 'qwen3'"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 4]}, "1, 2, 4"),
        ({"layer": {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 4}}, "target's of 8"),
        ({"vocab_size": 70, "outputs": OUTPUTS[:40]}, "embed_tokens.weight is (70, 32)"),
        ({"outputs": [3, 3]}, "d2t"),
    ]
    for number, (changes, reason) in enumerate(cases):
        head = make_head(tmp_path / str(number), **changes)
        with pytest.raises(ModelRefusedError) as refusal:
            load_runner(engine_config(target, head=str(head)))
        assert reason in refusal.value.message, refusal.value.message


def test_a_pickled_head_is_refused(tmp_path: Path) -> None:
    target, head = make_model(tmp_path / "target"), make_head(tmp_path / "head")
    (head / "model.safetensors").rename(head / "pytorch_model.bin")
    with pytest.raises(ModelRefusedError, match=r"pytorch_model\.bin is pickled"):
        load_runner(engine_config(target, head=str(head)))


def test_a_tensor_that_is_missing_or_unknown_is_named(tmp_path: Path) -> None:
    target, head = make_model(tmp_path / "target"), make_head(tmp_path / "head")
    whole = load_file(head / "model.safetensors")
    for tensors, named in (
        ({name: value for name, value in whole.items() if name != "norm.weight"}, "norm.weight"),
        (whole | {"markov_w1": torch.zeros(1)}, "markov_w1"),
    ):
        save_file(tensors, head / "model.safetensors")
        with pytest.raises(ModelRefusedError, match=named):
            load_runner(engine_config(target, head=str(head)))
