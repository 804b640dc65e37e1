"""With trees of tokens, too, the joint distribution of the first tokens is the target's, as that of chains."""

from typing import Any

import pytest

import specpair.speculation.trees.siblings as siblings
from specpair.options import SamplingOptions
from tests.service.distributions import (
    ENOUGH_FOR_CONTROLS,
    FEWER,
    OPTIONS,
    PLAIN,
    RULES,
    Served,
    check_distribution,
    draw,
    folders,
    p_value,
    served,
)

__all__ = ["folders", "served"]
TREE: dict[str, Any] = {"num_speculative_tokens": 3, "num_tree_tokens": 8}
MANY = 1000
SOME = ("several", "min_tokens", "frequency_penalty", "top_p")


@pytest.mark.few_cases("several-block")
@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.parametrize("option", ["plain", *SOME])
async def test_the_distribution_is_the_targets(served: Served, rule: str, option: str) -> None:
    """Under the coupled rule each token is compared instead (`test_trees.py`)."""
    options: SamplingOptions = PLAIN if option == "plain" else OPTIONS[option]
    samples = MANY if option in ("plain", "several") else FEWER
    await check_distribution(served, options, samples, rule=RULES[rule], **TREE)


async def lowest_p_value(served: Served, rule: str) -> float:
    counts = await draw(served.pair, PLAIN, 4 * ENOUGH_FOR_CONTROLS, rule=RULES[rule], **TREE)
    return min(p_value(counts, served.model, PLAIN, length) for length in (1, 2, 3))


async def test_siblings_without_replacement_are_not_judged_as_independent(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sixth control of those that trees need: the same test must see it. (Under the token rule it takes more
    outputs, and is left to enumeration.)"""
    monkeypatch.setattr(siblings, "_leave_out", lambda row, place: row)
    assert await lowest_p_value(served, "block") < 1e-12


@pytest.mark.few_cases()
async def test_a_sibling_is_judged_by_what_the_rejected_ones_left(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(siblings.Residual, "without", lambda residual, draw: residual)
    assert await lowest_p_value(served, "token") < 1e-12
