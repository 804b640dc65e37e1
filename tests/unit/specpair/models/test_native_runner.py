"""The compiled runner gives the logits of transformers, and each row the same bits in any company."""

import re
from ctypes import Structure
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor

from specpair.caches.holding import Holding, Segment
from specpair.engine_config import EngineConfig
from specpair.errors import ModelRefusedError
from specpair.models import load_runner as loading_runners
from specpair.models import native_memory, native_runner, native_structures
from specpair.models.batch import Batch
from specpair.models.fused_runner import FusedRunner
from specpair.models.fusible import computes_bfloat16
from specpair.models.load_runner import load_runner
from specpair.models.loading import load
from specpair.models.model_cache import make_cache
from specpair.models.native_runner import NativeRunner
from specpair.models.runner import Runner
from specpair.models.self_check import chunked_logits, fed_in_steps, plain_logits, run_chunks
from specpair.native.compiling import SOURCE
from specpair.native.library import native_library
from tests.services import engine_config
from tests.tiny_models import make_model
from tests.unit.specpair.models.test_fused_runner import KINDS, ids, tiny

needs_compiler = pytest.mark.skipif(native_library() is None, reason="needs a C compiler")
needs_bf16 = pytest.mark.skipif(
    not computes_bfloat16(torch.device("cpu")), reason="this processor has no units for bf16"
)
WIDE: dict[str, Any] = {"hidden_size": 96, "intermediate_size": 200, "num_attention_heads": 3, "num_key_value_heads": 1}
"""Several panels, a head of 32, and sizes that are no multiples of a panel."""
COMPILED_FOR: dict[str, dict[str, Any]] = {
    "heads_of_64": {"hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2, "initializer_range": 0.05},
    "heads_of_128": {"hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 1, "initializer_range": 0.05},
}
"""Attention has code for these sizes of heads."""


def narrow(folder: Path, kind: str, **changes: Any) -> Path:
    """A checkpoint in bf16."""
    wide = make_model(folder / "wide", kind, **changes) if changes else tiny(folder / "wide", kind)
    hf.AutoModelForCausalLM.from_pretrained(wide, dtype=torch.bfloat16).save_pretrained(folder / "narrow")
    return folder / "narrow"


QUANTIZATIONS = ["none"]
if (_library := native_library()) is not None and _library.specpair_multiplies_bytes():
    QUANTIZATIONS += ["int8", "int4"]


@needs_compiler
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    """In uneven chunks of two sequences, with a rollback; weights of 32 bits."""
    config = engine_config(tiny(tmp_path, kind))
    _, runner = load_runner(config)
    assert isinstance(runner, NativeRunner)
    expected = torch.stack([plain_logits(load(config), row) for row in ids()])
    assert torch.allclose(chunked_logits(runner, ids()), expected, atol=2e-4)


@needs_compiler
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_weights_of_16_bits_are_multiplied_in_32(kind: str, tmp_path: Path) -> None:
    config = engine_config(narrow(tmp_path, kind), dtype="float32")
    _, runner = load_runner(config)
    expected = torch.stack([plain_logits(load(config), row) for row in ids()])
    assert torch.allclose(chunked_logits(runner, ids()), expected, atol=2e-4)


@needs_compiler
@needs_bf16
@pytest.mark.parametrize("kind", KINDS)
def test_in_bf16_it_is_closer_to_the_model_than_transformers_in_bf16(kind: str, tmp_path: Path) -> None:
    config = engine_config(narrow(tmp_path, kind), dtype="bfloat16")
    _, runner = load_runner(config)
    assert isinstance(runner, NativeRunner)
    exact = load(engine_config(tmp_path / "narrow", dtype="float32"))
    expected = torch.stack([plain_logits(exact, row) for row in ids()])
    theirs = torch.stack([plain_logits(load(config), row) for row in ids()])
    ours = chunked_logits(runner, ids())
    assert (ours - expected).pow(2).mean() < 1.2 * (theirs - expected).pow(2).mean()
    assert (ours - expected).abs().max() < 0.05 * expected.abs().max()


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(("threads", "others"), [(1, 2), (2, 1), (2, 5)])
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=needs_bf16)])
@pytest.mark.parametrize("kind", ["llama", "qwen2_sliding", "qwen3", "wide", *COMPILED_FOR])
def test_a_row_has_the_same_bits_in_any_company(
    kind: str, dtype: str, threads: int, others: int, tmp_path: Path
) -> None:
    """Token by token, a few at a time, all at once, and beside another sequence; by `threads` and by `others`."""
    sizes = {"wide": WIDE, **COMPILED_FOR}
    folder = narrow(tmp_path, "llama", **sizes[kind]) if kind in sizes else narrow(tmp_path, kind)
    before = torch.get_num_threads()
    try:
        _, runner = load_runner(engine_config(folder, dtype=dtype, threads=threads))
        assert isinstance(runner, NativeRunner)
        row = ids(40)[0].tolist()
        alone = one_by_one(runner, row)
        torch.set_num_threads(others)
        assert torch.equal(fed_in_steps(runner, row), alone)
        assert torch.equal(fed(runner, runner.cache.open([]), row), alone)
        other = ids(40)[1].tolist()
        together = run_chunks(runner, [runner.cache.open([]), runner.cache.open([])], [other[:33], row])
        assert torch.equal(together[1], alone)
    finally:
        torch.set_num_threads(before)


@needs_compiler
@pytest.mark.parametrize(
    ("shape", "changes", "reason"),
    [
        ({}, {"cache": "paged"}, "it has no --cache paged"),
        ({}, {"cache": "paged", "quantization": "int8"}, "it has no --cache paged"),
        ({"hidden_size": 35, "head_dim": 8}, {}, "hidden_size is 35, and must be even"),
    ],
)
def test_a_refusal_says_what_keeps_a_model_from_it(
    shape: dict[str, Any], changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    """And not all that might."""
    heads = {"num_attention_heads": 5, "num_key_value_heads": 5, "hidden_size": 40}
    folder = make_model(tmp_path, "llama", **{**heads, **shape})
    with pytest.raises(ModelRefusedError, match=f"--runner native: {reason}"):
        load_runner(engine_config(folder, runner="native", **changes))


LARGE: dict[str, Any] = WIDE | {"hidden_size": 160, "intermediate_size": 320, "num_attention_heads": 5}
"""Several groups of inputs of each kind, and several blocks of a panel."""
ROW_COUNTS = [*range(1, 31), 41, 71]
"""Products take rows in tiles of up to 14 and five tiles at a time: tiles of every size, and more than five of any."""


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=needs_bf16)])
@pytest.mark.parametrize("quantization", [*QUANTIZATIONS, "unrounded"])
def test_a_row_has_the_same_bits_among_any_number(dtype: str, quantization: str, tmp_path: Path) -> None:
    if quantization == "unrounded":  # weights of 32 bits
        folder, held = make_model(tmp_path, **LARGE), "none"
    else:
        folder, held = narrow(tmp_path, "llama", **LARGE), quantization
    _, runner = load_runner(engine_config(folder, dtype=dtype, quantization=held, runner="native"))
    assert isinstance(runner, NativeRunner)
    row = ids(max(ROW_COUNTS))[0].tolist()
    alone = one_by_one(runner, row)
    for count in ROW_COUNTS:
        assert torch.equal(fed(runner, runner.cache.open([]), row[:count]), alone[:count]), f"{count} rows"


@needs_compiler
def test_memory_that_is_kept_grows_with_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny(tmp_path, "llama")
    row = ids(40)[0].tolist()
    _, usual = load_runner(engine_config(folder))
    expected = one_by_one(usual, row)
    monkeypatch.setattr(native_memory, "KEPT_TOKENS", 4)
    monkeypatch.setattr(native_memory, "KEPT_SCORES", 1)
    _, runner = load_runner(engine_config(folder))
    assert isinstance(runner, NativeRunner)
    assert torch.equal(one_by_one(runner, row), expected)
    memory = runner._native._memory._kept
    assert memory is not None and memory.order.score_count >= len(row) + native_memory.SCORE_ROUND
    assert torch.equal(fed_in_steps(runner, row), expected), "more tokens at once than are kept room for"


@needs_compiler
@pytest.mark.parametrize("factor", [80.0, 1e3, 1e4])
def test_gates_that_are_closed_tightly_let_nothing_through(factor: float, tmp_path: Path) -> None:
    config = engine_config(tiny(tmp_path, "llama"))
    loaded = load(config)
    decoder: Any = loaded.model.model
    with torch.no_grad():
        for layer in decoder.layers:
            layer.mlp.gate_proj.weight.mul_(factor)
    token_ids = ids()[0]
    expected = plain_logits(loaded, token_ids)
    actual = one_by_one(NativeRunner(loaded, make_cache(config, loaded.facts)), token_ids.tolist())
    assert (actual - expected).abs().max() < 1e-3 * expected.abs().max().clamp(min=1.0)


def fed(runner: Runner, holding: Holding, token_ids: list[int]) -> Tensor:
    return run_chunks(runner, [holding], [token_ids])[0]


def one_by_one(runner: Runner, token_ids: list[int]) -> Tensor:
    holding = runner.cache.open([])
    return torch.cat([fed(runner, holding, [token]) for token in token_ids])


@needs_compiler
def test_a_row_that_is_not_finite_harms_no_other(tmp_path: Path) -> None:
    """Neither the tokens before it nor another sequence."""
    _, runner = load_runner(engine_config(make_model(tmp_path)))
    assert isinstance(runner, NativeRunner)
    first, second = ids(20)
    clean = run_chunks(runner, [runner.cache.open([]), runner.cache.open([])], [first.tolist(), second.tolist()])
    poisoned = next(token for token in range(64) if token not in [*first.tolist(), *second.tolist()])
    runner._native.embedding[poisoned] = float("nan")
    broken = [*first.tolist()[:10], poisoned, *first.tolist()[11:]]
    rows = run_chunks(runner, [runner.cache.open([]), runner.cache.open([])], [broken, second.tolist()])
    assert torch.equal(rows[0][:10], clean[0][:10]) and torch.equal(rows[1], clean[1])
    assert not rows[0][10:].isfinite().any()


@needs_compiler
def test_only_wanted_rows_are_computed(tmp_path: Path) -> None:
    _, runner = load_runner(engine_config(make_model(tmp_path)))
    holdings = [runner.cache.open([]) for _ in range(2)]
    first, second = (row.tolist() for row in ids(9))
    for holding in holdings:
        runner.cache.append(holding, 9)
    segments = [Segment(holding, 0, 9) for holding in holdings]
    wanted = runner.forward(Batch.of_chains(segments, first + second, [2, 0])).logits
    assert torch.equal(wanted, fed(runner, runner.cache.open([]), first)[-2:])
    segments = [Segment(runner.cache.open([]), 0, 9)]
    runner.cache.append(segments[0].holding, 9)
    assert runner.forward(Batch.of_chains(segments, first, [0])).logits.shape == (0, 64)


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=needs_bf16)])
@pytest.mark.parametrize(("heads", "key_heads", "head_size"), [(6, 2, 8), (6, 1, 64), (10, 2, 128), (9, 1, 8)])
def test_rows_of_a_tree_have_the_bits_of_a_chain(
    tmp_path: Path, dtype: str, heads: int, key_heads: int, head_size: int
) -> None:
    """Three to nine queries share each key head: those of a token are attended to together, up to six at a time."""
    sizes: dict[str, Any] = {"num_attention_heads": heads, "num_key_value_heads": key_heads, "head_dim": head_size}
    make_model(tmp_path, hidden_size=heads * head_size, initializer_range=0.05, **sizes)
    _, runner = load_runner(engine_config(tmp_path, runner="native", dtype=dtype))
    holding, start = runner.cache.open([]), 30
    fed(runner, holding, list(range(1, start + 1)))
    runner.cache.append(holding, 6)
    tree = Batch.of_trees([Segment(holding, start, 6)], [31, 5, 6, 7, 8, 9], [6], [None, 0, 0, 1, 2, 3])
    found = runner.forward(tree).logits.clone()
    runner.cache.truncate_to(holding, start)
    assert torch.equal(found[[0, 1, 3, 5]], fed(runner, holding, [31, 5, 7, 9]))


@pytest.mark.parametrize("name", ["Product", "Layer", "Model", "Eagle", "Segment", "Pass", "Chain", "Draft", "Tree"])
def test_structures_are_those_of_the_source(name: str) -> None:
    """The same fields in the same order, and none of another size than eight bytes."""
    source = "".join(file.read_text() for file in SOURCE.iterdir())
    body = re.sub(r"/\*.*?\*/", "", re.search(rf"struct {name} {{(.*?)\n}};", source, re.S)[1], flags=re.S)  # type: ignore[index]
    declared = [re.findall(r"\w+", one)[-1] for part in body.split(";") for one in part.split(",") if one.strip()]
    structure: type[Structure] = getattr(native_structures, name)
    renamed = {"in": "ins", "out": "outs"}
    assert [renamed.get(field, field) for field in declared] == [field for field, *_ in structure._fields_]
    assert not re.search(r"\bint\b|int32_t [^*]|\bfloat [^*]", body)


def test_each_thread_has_room_for_the_scores_of_all_queries() -> None:
    most = re.findall(r"#define QUERIES (\d+)", (SOURCE / "attention.h").read_text())
    assert max(map(int, most)) == native_memory.QUERIES


@needs_compiler
@pytest.mark.parametrize(("capability", "kind"), [("AVX512", FusedRunner), ("AVX2", NativeRunner)])
def test_wide_layers_in_float32_stay_with_the_fused_runner_where_its_products_are_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capability: str, kind: type[Runner]
) -> None:
    monkeypatch.setattr(native_runner, "LARGE_LAYER", 100)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    make_model(tmp_path)
    assert isinstance(load_runner(engine_config(tmp_path))[1], kind)
    assert isinstance(load_runner(engine_config(tmp_path, runner="native"))[1], NativeRunner)


@needs_compiler
def test_a_runner_that_fails_its_check_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = loading_runners.check

    def check(loaded: Any, runner: Runner) -> None:
        if isinstance(runner, NativeRunner):
            raise ModelRefusedError("wrong")
        real(loaded, runner)

    monkeypatch.setattr(loading_runners, "check", check)
    config: EngineConfig = engine_config(make_model(tmp_path))
    assert isinstance(load_runner(config)[1], FusedRunner)
    with pytest.raises(ModelRefusedError, match="wrong"):
        load_runner(engine_config(tmp_path, runner="native"))


@needs_compiler
def test_an_odd_width_is_left_to_the_fused_runner(tmp_path: Path) -> None:
    """Weights of 16 bits are packed by two inputs."""
    odd: dict[str, Any] = {"hidden_size": 33, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8}
    folder = narrow(tmp_path, "llama", **odd)
    _, runner = load_runner(engine_config(folder))
    assert isinstance(runner, FusedRunner)
    with pytest.raises(ModelRefusedError, match="hidden_size is 33, and must be even"):
        load_runner(engine_config(folder, runner="native"))
