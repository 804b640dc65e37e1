"""With the chains of several drafts merged, too, the joint distribution of the first tokens is the target's."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import specpair.drafting as drafting
from specpair.options import SamplingOptions
from tests.service.metrics_load import total
from tests.service.test_distribution import (
    ENCODINGS,
    ENOUGH_FOR_CONTROLS,
    OPTIONS,
    PLAIN,
    RULES,
    Served,
    draw,
    folders,
    p_value,
)
from tests.services import engine_config, running_pair
from tests.tiny_models import load_plain, make_variation

__all__ = ["folders"]
TWO, THREE = ["near", "far"], ["far", "ngram", "near"]
ENOUGH = 500


@pytest.fixture(scope="module")
async def served(folders: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    target, far = folders
    near = make_variation(tmp_path_factory.mktemp("near"), target, spread=0.3)
    drafts = {"near": engine_config(near), "far": engine_config(far), "twin": engine_config(far)}
    async with running_pair(engine_config(target), drafts=drafts, merge_wait=60.0) as pair:
        yield Served(pair, load_plain(target))
        await pair.check_clean()


def drafted(served: Served) -> float:
    return total(served.pair.front_end.registry, "specpair_spec_decode_num_draft_tokens_total")


@pytest.mark.parametrize(
    ("rule", "drafts", "encoding", "option"),
    [
        ("token", TWO, "sparse", "plain"),
        ("block", TWO, "sparse", "plain"),
        ("token", THREE, "dense", "frequency_penalty"),
    ],
)
async def test_the_distribution_is_the_targets(
    served: Served, rule: str, drafts: list[str], encoding: str, option: str
) -> None:
    options: SamplingOptions = PLAIN if option == "plain" else OPTIONS[option]
    fields: dict[str, Any] = {"rule": RULES[rule], "encoding": ENCODINGS[encoding], "drafts": drafts}
    before = drafted(served)
    counts = await draw(served.pair, options, ENOUGH, **fields)
    assert drafted(served) - before > 3 * ENOUGH, "most rounds had a tree"
    for length in (2, 3, 4):
        assert p_value(counts, served.model, options, length) > 1e-3, f"{length} tokens"


async def test_drafts_that_draw_by_the_same_numbers_are_seen(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: what makes the draws of two drafts independent is their place."""
    monkeypatch.setattr(drafting, "first_offset", lambda place: 0)
    counts = await draw(served.pair, PLAIN, ENOUGH_FOR_CONTROLS, rule=RULES["block"], drafts=["far", "twin"])
    assert min(p_value(counts, served.model, PLAIN, length) for length in (1, 2, 3)) < 1e-6
