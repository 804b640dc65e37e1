"""A tree of tokens in one pass gives the logits of each of its paths."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specpair.caches.holding import Holding, Segment
from specpair.errors import NotSupportedError
from specpair.models.batch import Batch
from specpair.models.load_runner import load_runner
from specpair.models.runner import Runner
from specpair.models.self_check import run_chunks
from specpair.native.library import native_library
from tests.services import engine_config
from tests.tiny_models import make_model

PROMPT = [5, 17, 3, 44, 8, 21, 60, 2, 33]
LAST, TREE = 12, [7, 31, 50, 9]
"""The last committed token, then two siblings, a child of the second, and its child."""
PARENTS = [None, 0, 0, 2, 3]
PATHS = ([], [7], [31], [31, 50], [31, 50, 9])
"""What comes after the last committed token up to each row."""
WINDOW = 2
"""Of sliding layers, by position: the deepest token does not see the third before it, however near it is stored."""

WAYS = [
    ("llama", "plain"),
    ("llama", "fused"),
    ("qwen2_sliding", "plain"),
    ("qwen2_sliding", "fused"),
    ("llama", "native"),
    ("qwen2_sliding", "native"),
    ("gemma2", "plain"),
]


def load(folder: Path, kind: str, **changes: Any) -> Runner:
    window = {} if kind == "llama" else {"sliding_window": WINDOW}
    return load_runner(engine_config(make_model(folder, kind, **window), **changes))[1]


def chain(runner: Runner, token_ids: list[int]) -> Tensor:
    """Logits after the last token, fed as a chain of its own."""
    return run_chunks(runner, [runner.cache.open([])], [token_ids])[0][-1]


def after_prompt(runner: Runner, prompt: list[int] = PROMPT) -> Holding:
    holding = runner.cache.open([])
    run_chunks(runner, [holding], [prompt])
    return holding


def tree_batch(runner: Runner, holding: Holding) -> Batch:
    segment = Segment(holding, holding.length, 1 + len(TREE))
    runner.cache.append(holding, segment.token_count)
    return Batch.of_trees([segment], [LAST, *TREE], [segment.token_count], PARENTS)


@pytest.mark.parametrize("cache", ["contiguous", "paged"])
@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_rows_of_a_tree_are_those_of_its_paths(kind: str, way: str, cache: str, tmp_path: Path) -> None:
    if way == "native" and (cache == "paged" or native_library() is None):
        pytest.skip("needs a compiler and a contiguous cache")
    runner = load(tmp_path, kind, runner=way, cache=cache)
    rows = runner.forward(tree_batch(runner, after_prompt(runner))).logits
    expected = torch.stack([chain(runner, [*PROMPT, LAST, *path]) for path in PATHS])
    assert torch.allclose(rows, expected, atol=2e-4)


@pytest.mark.parametrize("cache", ["contiguous", "paged"])
def test_the_accepted_path_is_kept(cache: str, tmp_path: Path) -> None:
    runner = load(tmp_path, "qwen2_sliding", cache=cache)
    holding = after_prompt(runner)
    runner.forward(tree_batch(runner, holding))
    runner.cache.keep_path(holding, len(PROMPT), [0, 2, 3])
    assert holding.length == len(PROMPT) + 3
    rows = run_chunks(runner, [holding], [[40, 41]])[0]
    assert torch.allclose(rows[1], chain(runner, [*PROMPT, LAST, 31, 50, 40, 41]), atol=2e-4)


def test_trees_and_chains_share_a_pass(tmp_path: Path) -> None:
    runner = load(tmp_path, "llama")
    tree, other = after_prompt(runner), after_prompt(runner, PROMPT[:4])
    branching = tree_batch(runner, tree)
    runner.cache.append(other, 2)
    batch = Batch.of_trees(
        [Segment(other, 4, 2), *branching.segments], [1, 6, *branching.token_ids], [1, 5],
        [None, 0, *(None if parent is None else parent + 2 for parent in PARENTS)],
    )  # fmt: skip
    rows = runner.forward(batch).logits
    expected = [chain(runner, [*PROMPT[:4], 1, 6]), *(chain(runner, [*PROMPT, LAST, *path]) for path in PATHS)]
    assert torch.allclose(rows, torch.stack(expected), atol=2e-4)


def test_a_deterministic_model_runs_no_trees(tmp_path: Path) -> None:
    runner = load(tmp_path, "llama", deterministic=True)
    with pytest.raises(NotSupportedError, match="trees of tokens are not supported with --deterministic"):
        runner.forward(tree_batch(runner, after_prompt(runner)))
