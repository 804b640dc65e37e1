"""With `deterministic`, every logit is the same bits however its tokens came in; without it, they are not."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from specpair.caches.holding import Holding, Segment
from specpair.errors import ModelRefusedError
from specpair.models.aligned_runner import aligned_parts
from specpair.models.load_runner import load_runner
from specpair.models.runner import Runner
from specpair.models.self_check import run_chunks
from tests.services import engine_config
from tests.tiny_models import CONFIGS, NO_TOKENS, SHAPE, make_model

LENGTH = 61
CACHES = ("contiguous", "paged")


def random_ids(length: int = LENGTH, seed: int = 0) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(64) for _ in range(length)]


def load(folder: Path, **changes: Any) -> Runner:
    return load_runner(engine_config(folder, **{"deterministic": True, **changes}))[1]


def feed(runner: Runner, holding: Holding, token_ids: list[int]) -> Tensor:
    return run_chunks(runner, [holding], [token_ids])[0]


def at_once(runner: Runner, ids: list[int]) -> Tensor:
    return feed(runner, runner.cache.open([]), ids)


def one_by_one(runner: Runner, ids: list[int]) -> Tensor:
    holding = runner.cache.open([])
    return torch.cat([feed(runner, holding, [token]) for token in ids])


def with_rollbacks(runner: Runner, ids: list[int]) -> Tensor:
    """In pieces of any length, each with wrong tokens behind it that are rolled back, as after a rejected proposal."""
    draw = random.Random(1)
    holding = runner.cache.open([])
    rows = []
    while holding.length < len(ids):
        start = holding.length
        piece = ids[start : start + draw.randint(1, 9)]
        wrong = [63 - token for token in ids[start + len(piece) :][: draw.randint(0, 6)]]
        rows.append(feed(runner, holding, piece + wrong)[: len(piece)])
        runner.cache.truncate_to(holding, start + len(piece))
    return torch.cat(rows)


def among_others(runner: Runner, ids: list[int]) -> Tensor:
    """In a batch with sequences at other positions, which are fed other counts of tokens."""
    draw = random.Random(2)
    others = [random_ids(120, seed) for seed in (1, 2, 3)]
    holdings = [runner.cache.open([]) for _ in (ids, *others)]
    for holding, other in zip(holdings[1:], others, strict=True):
        feed(runner, holding, other[: draw.randint(1, 20)])
    rows = []
    while holdings[0].length < len(ids):
        chunks = [
            tokens[holding.length : holding.length + draw.randint(1, 6)]
            for holding, tokens in zip(holdings, (ids, *others), strict=True)
        ]
        rows.append(run_chunks(runner, holdings, chunks)[0])
    return torch.cat(rows)


def after_a_kept_prefix(runner: Runner, ids: list[int]) -> Tensor:
    """The first part is found in the cache, where another sequence left it; then a fork goes on."""
    first = runner.cache.open([])
    rows = feed(runner, first, ids[:40])
    runner.cache.keep(first, ids[:40])
    runner.cache.free(first)
    second = runner.cache.open(ids)
    assert second.length >= 36
    found = second.length
    middle = feed(runner, second, ids[found:50])
    fork = runner.cache.fork(second, 45)
    return torch.cat([rows[:found], middle[: 45 - found], feed(runner, fork, ids[45:])])


WAYS: tuple[Callable[[Runner, list[int]], Tensor], ...] = (
    at_once, one_by_one, with_rollbacks, among_others, after_a_kept_prefix,
)  # fmt: skip


def check_all_ways(folder: Path, **changes: Any) -> None:
    ids = random_ids()
    expected = at_once(load(folder, **changes), ids)
    for cache in CACHES:
        runner = load(folder, cache=cache, **changes)
        for way in WAYS:
            assert torch.equal(way(runner, ids), expected), f"{way.__name__}, {cache}"


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("kind", CONFIGS)
def test_logits_depend_on_the_tokens_before_them_alone(kind: str, tmp_path: Path) -> None:
    check_all_ways(make_model(tmp_path, kind))


def test_bfloat16(tmp_path: Path) -> None:
    ids = random_ids()
    make_model(tmp_path)
    runner = load(tmp_path, dtype="bfloat16")
    assert torch.equal(one_by_one(runner, ids), at_once(runner, ids))


@pytest.mark.parametrize("way", [one_by_one, with_rollbacks, among_others])
def test_the_plain_runner_does_differ(way: Callable[[Runner, list[int]], Tensor], tmp_path: Path) -> None:
    """The control: these ways of feeding do change bits where nothing is done against it."""
    runner = load(make_model(tmp_path), deterministic=False, runner="plain")
    ids = random_ids()
    assert not torch.equal(way(runner, ids), at_once(runner, ids))


def test_up_to_the_last_position(tmp_path: Path) -> None:
    """A longest sequence that ends within a chunk: the padding behind it has no position in the model."""
    config = {"n_positions": 54, "n_embd": 32, "n_layer": 2, "n_head": 4}
    runner = load(make_model(tmp_path, "gpt2", **config))
    ids = random_ids(54)
    assert torch.equal(one_by_one(runner, ids), at_once(runner, ids))


def save_mixtral(folder: Path) -> Path:
    torch.manual_seed(0)
    config = hf.MixtralConfig(**{**SHAPE, **NO_TOKENS, "vocab_size": 64, "initializer_range": 0.2})
    hf.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_experts(tmp_path: Path) -> None:
    check_all_ways(save_mixtral(tmp_path))


def test_a_model_whose_shapes_depend_on_the_tokens_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Experts by the library's default: how many rows each multiplies depends on where the others were routed."""
    save_mixtral(tmp_path)
    monkeypatch.setattr(hf.PreTrainedModel, "set_experts_implementation", lambda *arguments: None)
    load(tmp_path, deterministic=False)
    with pytest.raises(ModelRefusedError, match="mixtral: logits depend on the other tokens"):
        load(tmp_path)


COMPUTING = ("mm", "matmul", "linear", "attention", "mean", "softmax", "silu", "gelu", "tanh", "mul", "add")


class ShapeRecorder(TorchDispatchMode):
    """Notes shapes and strides of the operands of everything that computes."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[str, ...]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        if any(part in name for part in COMPUTING):
            operands = [given for given in args if isinstance(given, Tensor)]
            self.shapes.append((name, *(f"{tuple(given.shape)} {given.stride()}" for given in operands)))
        return function(*args, **(kwargs or {}))


def recorded(runner: Runner, holding: Holding, token_ids: list[int]) -> list[tuple[str, ...]]:
    with ShapeRecorder() as recorder:
        feed(runner, holding, token_ids)
    return recorder.shapes


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_shapes_depend_on_the_position_alone(kind: str, tmp_path: Path) -> None:
    """Equal bits may be this processor's luck; equal shapes are not."""
    runner = load(make_model(tmp_path, kind))
    ids = random_ids(48)
    whole = recorded(runner, runner.cache.open([]), ids)
    holding = runner.cache.open([])
    steps = [recorded(runner, holding, [token]) for token in ids]
    assert whole == steps[0] + steps[16] + steps[32]
    assert len(steps[0]) > 50
    for position in range(48):
        assert steps[position] == steps[position // 16 * 16]


@given(start=st.integers(0, 99), count=st.integers(1, 99), size=st.integers(1, 40))
def test_parts_cover_the_segment_and_stay_within_chunks(start: int, count: int, size: int) -> None:
    holding = Holding(start + count, None)
    parts = list(aligned_parts(Segment(holding, start, count), size))
    assert [position for part in parts for position in range(part.start, part.end)] == list(range(start, start + count))
    assert all(part.start // size == (part.end - 1) // size for part in parts)
    assert len({part.start // size for part in parts}) == len(parts)
