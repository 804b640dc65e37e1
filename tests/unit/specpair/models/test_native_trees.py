"""Trees of an EAGLE-3 head that are grown in one compiled call are those that grow level by level."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from specpair.caches.holding import Segment
from specpair.models import head_files
from specpair.models.batch import Batch
from specpair.models.load_runner import load_runner
from specpair.models.native_headed_runner import NativeHeadedRunner
from specpair.models.native_memory import KEPT_TOKENS
from specpair.models.tree_row import TreeRow
from specpair.native.compiling import SOURCE
from specpair.native.library import native_library
from specpair.options import Rule, SamplingOptions, SequenceOptions
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence
from specpair.speculation import outlook
from specpair.speculation.trees.ranked_growth import GrowthLimits, RankedGrowth, most_asked
from specpair.speculation.trees.token_tree import TokenTree
from target_service.own_proposal import OwnDraft
from target_service.tree_drafting import grow_level
from tests.services import engine_config
from tests.tiny_heads import OUTPUTS, make_head
from tests.tiny_models import make_model

pytestmark = pytest.mark.skipif(native_library() is None, reason="needs a compiler")

TEXTS = [[5, 17, 3, 44, 8, 21, 60, 2, 33, 12], [31, 7, 50, 9, 1, 2], [11, 12, 13, 14, 15, 16, 17, 18]]
GREEDY = SequenceOptions(sampling=SamplingOptions(temperature=0.0))
COUPLED = SequenceOptions(sampling=SamplingOptions(temperature=0.8, seed=3), rule=Rule.COUPLED)
HEADS: dict[str, dict[str, Any]] = {
    "borrowing": {},
    "own vocabulary": {"outputs": OUTPUTS},
    "feeds back": {"fc_norm": True, "norm_output": True},
}


def load(tmp_path: Path, head: dict[str, Any]) -> NativeHeadedRunner:
    return started(make_model(tmp_path / "target"), make_head(tmp_path / "head", **head))


def started(target: Path, folder: Path) -> NativeHeadedRunner:
    _, runner = load_runner(engine_config(target, head=str(folder), runner="native"))
    assert isinstance(runner, NativeHeadedRunner)
    return runner


def fed(runner: NativeHeadedRunner, text: list[int]) -> Any:
    """A sequence of which the last token is not fed."""
    holding = runner.cache.open([])
    runner.cache.append(holding, len(text) - 1)
    runner.forward(Batch.of_chains([Segment(holding, 0, len(text) - 1)], text[:-1], [1]))
    return holding


def draft_of(text: list[int], options: SequenceOptions) -> OwnDraft:
    held: Any = HeldSequence(options, None, len(text), Sequence(list(text)), len(text))
    return OwnDraft.after(held, list(text), 1, 8)


def by_levels(runner: NativeHeadedRunner, holdings: Any, places: Any, drafts: Any, limits: Any) -> list[TokenTree]:
    growths = [RankedGrowth(own) for own in limits]
    run = runner.grow(holdings, places, most_asked(max(own.max_depth for own in limits)))
    while any(growth.frontier for growth in growths):
        grow_level(run, growths, drafts)
    return [growth.tree() for growth in growths]


def whole(runner: NativeHeadedRunner, holdings: Any, places: Any, drafts: Any, limits: Any) -> list[TokenTree]:
    rows = [
        TreeRow(token=draft.sequence.tokens[-1], limits=own, sampling=draft.options.sampling)
        for draft, own in zip(drafts, limits, strict=True)
    ]
    return runner.grow_whole(holdings, places, rows)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("head", HEADS)
def test_trees_grow_whole_as_level_by_level(head: str, threads: int, tmp_path: Path) -> None:
    runner = load(tmp_path, HEADS[head])
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        check_whole_trees(runner)
    finally:
        torch.set_num_threads(before)


def check_whole_trees(runner: NativeHeadedRunner) -> None:
    """Also with more sequences than memory is kept for."""
    holdings = [fed(runner, text) for text in TEXTS]
    places = [range(len(text) - 1) for text in TEXTS]
    drafts = [draft_of(text, options) for text, options in zip(TEXTS, [GREEDY, COUPLED, GREEDY], strict=True)]
    limits = [GrowthLimits(max_nodes=nodes, max_depth=depth) for nodes, depth in [(12, 4), (16, 6), (1, 1)]]
    expected = by_levels(runner, holdings, places, drafts, limits)
    assert whole(runner, holdings, places, drafts, limits) == expected
    assert [len(tree.tokens) for tree in expected] == [12, 16, 1] and not expected[0].is_chain
    assert whole(runner, holdings[1:2], places[1:2], drafts[1:2], limits[1:2]) == expected[1:2], "depends on company"
    many = 1 + KEPT_TOKENS // GrowthLimits.max_frontier
    texts = [TEXTS[index % 3][: 3 + index % 4] for index in range(many)]
    found = [trees_of(runner, COUPLED, texts, way, most=9, depth=3) for way in (whole, by_levels)]
    assert found[0] == found[1]


@pytest.mark.parametrize("options", [GREEDY, COUPLED], ids=["greedy", "coupled"])
def test_a_tree_grows_after_a_path_that_is_out_of_order(options: SequenceOptions, tmp_path: Path) -> None:
    """The last three tokens before the newest one are stored where a tree had them."""
    runner = load(tmp_path, {})
    text, holding = TEXTS[0], runner.cache.open([])
    start, path = len(text) - 4, (1, 2, 4)
    nodes, parents = [9, text[start], text[start + 1], 40, text[start + 2], 41], [None, None, 1, 2, 2, 0]
    runner.cache.append(holding, start)
    runner.forward(Batch.of_chains([Segment(holding, 0, start)], text[:start], [1]))
    runner.cache.append(holding, len(nodes))
    runner.forward(Batch.of_trees([Segment(holding, start, len(nodes))], nodes, [len(nodes)], parents))
    places = [[*range(start), *(start + node for node in path)]]
    drafts, limits = [draft_of(text, options)], [GrowthLimits(max_nodes=12, max_depth=4)]
    expected = by_levels(runner, [holding], places, drafts, limits)
    assert whole(runner, [holding], places, drafts, limits) == expected
    straight = fed(runner, text)
    assert whole(runner, [straight], [range(len(text) - 1)], drafts, limits) == expected


@pytest.mark.parametrize("options", [GREEDY, COUPLED], ids=["greedy", "coupled"])
def test_a_row_that_is_not_finite_ends_its_tree_alone(
    options: SequenceOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first tree one node of the second level is not finite, its siblings are. Weights that are not finite are
    refused; here they stand for a row that overflows."""
    monkeypatch.setattr(head_files, "is_finite", lambda tensor: True)
    runner = load(tmp_path, HEADS["own vocabulary"])
    grown = trees_of(runner, options, TEXTS[:2])
    first = grown[0].tokens[: grown[0].parents.count(-1)]
    bad = next(token for token in first if token not in {*TEXTS[0], *grown[1].tokens})
    runner = changed(tmp_path, "embed_tokens.weight", lambda weight: weight[bad].fill_(torch.nan))
    found = trees_of(runner, options, TEXTS[:2])
    assert set(found[0].parents) == {-1} and first[0] in found[0].tokens and found[1] == grown[1]
    assert found == trees_of(runner, options, TEXTS[:2], by_levels)


def test_of_equal_nodes_the_earlier_is_kept(tmp_path: Path) -> None:
    """A head that is certain gives a chain whose nodes are all as heavy as their parents."""
    load(tmp_path, {})
    runner = changed(tmp_path, "norm.weight", lambda weight: weight.mul_(1e4))
    found = trees_of(runner, GREEDY, TEXTS, most=3, depth=6)
    assert found == trees_of(runner, GREEDY, TEXTS, by_levels, most=3, depth=6)
    assert all(tree.parents == (-1, 0, 1) for tree in found)


def test_the_limits_are_those_of_the_source() -> None:
    source = (SOURCE / "growing.c").read_text()
    numbers = [int(re.search(rf"#define {name} (\d+)", source)[1]) for name in ("LOOKS", "FRONTIER")]  # type: ignore[index]
    assert numbers == [GrowthLimits.max_children, GrowthLimits.max_frontier]
    assert numbers[0] == outlook.WIDTH


def changed(tmp_path: Path, name: str, change: Callable[[Tensor], Any]) -> NativeHeadedRunner:
    """The runner of `load` with another tensor in its head."""
    file = tmp_path / "head" / "model.safetensors"
    tensors = load_file(file)
    change(tensors[name])
    save_file(tensors, file)
    return started(tmp_path / "target", tmp_path / "head")


def trees_of(
    runner: NativeHeadedRunner,
    options: SequenceOptions,
    texts: list[list[int]],
    way: Any = whole,
    *,
    most: int = 12,
    depth: int = 4,
) -> list[TokenTree]:
    holdings, places = [fed(runner, text) for text in texts], [range(len(text) - 1) for text in texts]
    limits = [GrowthLimits(max_nodes=most, max_depth=depth)] * len(texts)
    return way(runner, holdings, places, [draft_of(text, options) for text in texts], limits)
