"""A target whose head proposes trees: the output is its own, and rules that need distributions get chains."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator.outputs.own_proposals import beginning
from specpair.errors import ModelRefusedError
from specpair.models.native_headed_runner import NativeHeadedRunner
from specpair.native.library import native_library
from specpair.v1.proposal_pb2 import Proposal
from tests.service.distributions import RULES, Served
from tests.service.test_own_drafting import EAGLE, PROMPTS
from tests.services import engine_config, running_pair, running_target
from tests.tiny_heads import make_head
from tests.tiny_models import generate_greedily, load_plain, make_model
from tests.tiny_target_heads import make_medusa

NODES = 7


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("models")
    target = make_model(folder / "target")
    head = str(make_head(folder / "head"))
    async with running_pair(engine_config(target, head=head, head_tree_tokens=NODES)) as pair:
        yield Served(pair, load_plain(target))
        await pair.check_clean()


def parents(made: Any) -> list[list[int]]:
    """Of each proposal."""
    return [[token.parent_index for token in found.proposed] for found in made.rounds if found.proposed]


@pytest.mark.parametrize("count", [1, 3, 8, None])
async def test_greedy_output_is_the_targets_own(served: Served, count: int | None) -> None:
    fields = {} if count is None else {"num_speculative_tokens": count}
    for prompt in PROMPTS:
        made = await served.pair.generate(
            prompt, 30, temperature=0.0, drafter=EAGLE, ignore_eos=True, include_rounds=True, **fields
        )
        assert made.token_ids == generate_greedily(served.model, prompt, 30)
        if count is not None:
            assert any(len(set(own)) < len(own) for own in parents(made)), "no node has two children"


async def test_coupled_output_is_that_without_proposals(served: Served) -> None:
    accepted = 0
    for seed, prompt in enumerate(PROMPTS):
        options: dict[str, Any] = {"rule": RULES["coupled"], "seed": seed, "ignore_eos": True, "drafter": EAGLE}
        plain = await served.pair.generate(prompt, 60, **options, num_speculative_tokens=0)
        drafted = await served.pair.generate(prompt, 60, **options, num_speculative_tokens=4)
        assert drafted.token_ids == plain.token_ids
        accepted += drafted.summary.speculation.accepted_token_count
    assert accepted > 5


@pytest.mark.parametrize(("top_k", "way"), [(0, "grow_whole"), (5, "grow")])
async def test_trees_grow_whole_where_nothing_cuts_rows(
    served: Served, top_k: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if native_library() is None:
        pytest.skip("needs a compiler")
    taken: set[str] = set()

    def noted(name: str) -> Callable[..., Any]:
        real = getattr(NativeHeadedRunner, name)
        return lambda *args: taken.add(name) or real(*args)

    for name in ("grow", "grow_whole"):
        monkeypatch.setattr(NativeHeadedRunner, name, noted(name))
    options: dict[str, Any] = {
        "rule": RULES["coupled"],
        "seed": 3,
        "ignore_eos": True,
        "top_k": top_k,
        "drafter": EAGLE,
    }
    plain = await served.pair.generate(PROMPTS[0], 30, **options, num_speculative_tokens=0)
    drafted = await served.pair.generate(PROMPTS[0], 30, **options, num_speculative_tokens=4)
    assert drafted.token_ids == plain.token_ids and taken == {way}


@pytest.mark.parametrize("rule", ["token", "block"])
async def test_rules_with_distributions_get_chains(served: Served, rule: str) -> None:
    made = await served.pair.generate(
        PROMPTS[1], 30, rule=RULES[rule], drafter=EAGLE, ignore_eos=True, num_speculative_tokens=3, include_rounds=True
    )
    assert made.summary.speculation.draft_token_count > 0
    assert all(len(own) <= 3 and set(own) == {0} for own in parents(made)), "a chain has no parents"


async def test_a_head_that_makes_no_trees_is_refused_by_name(tmp_path: Path) -> None:
    target, head = make_model(tmp_path / "target"), make_medusa(tmp_path / "head")
    with pytest.raises(ModelRefusedError, match=r"head-tree-tokens.*chains alone"):
        async with running_target(engine_config(target, head=str(head), head_tree_tokens=4)):
            pass


async def test_trees_without_a_head_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelRefusedError, match=r"--head-tree-tokens: the target has no head"):
        async with running_target(engine_config(make_model(tmp_path / "target"), head_tree_tokens=4)):
            pass


def test_a_tree_is_cut_by_its_levels() -> None:
    tree = Proposal(token_ids=[10, 11, 12, 13, 14], parent_indices=[-1, 0, -1, 2, 1])
    cut = beginning(tree, 2)
    assert (list(cut.token_ids), list(cut.parent_indices)) == ([10, 11, 12, 13], [-1, 0, -1, 2])
    cut = beginning(tree, 1)
    assert (list(cut.token_ids), list(cut.parent_indices)) == ([10, 12], [-1, -1])
