"""With the chains of several drafts merged, too, the joint distribution of the first tokens is the target's."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import coordinator.peers.merged_session as merged_session
from coordinator.peers.merged_proposal import Merged, merge_proposals
from specpair.options import SamplingOptions
from specpair.v1.proposal_pb2 import Proposal
from tests.service.distributions import (
    ENCODINGS,
    ENOUGH_FOR_CONTROLS,
    OPTIONS,
    PLAIN,
    RULES,
    Served,
    check_distribution,
    draw,
    folders,
    p_value,
)
from tests.service.metrics_load import total
from tests.services import engine_config, running_pair
from tests.tiny_models import load_plain, make_variation

__all__ = ["folders"]
TWO, THREE = ["near", "far"], ["far", "ngram", "near"]
ENOUGH = 500


@pytest.fixture(scope="module")
async def served(folders: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    target, far = folders
    near = make_variation(tmp_path_factory.mktemp("near"), target, spread=0.3)
    drafts = {"near": engine_config(near), "far": engine_config(far)}
    async with running_pair(engine_config(target), drafts=drafts, merge_wait=60.0) as pair:
        yield Served(pair, load_plain(target))
        await pair.check_clean()


def drafted(served: Served) -> float:
    return total(served.pair.front_end.registry, "specpair_spec_decode_num_draft_tokens_total")


@pytest.mark.few_cases("block-drafts1-sparse-plain")
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
    await check_distribution(served, options, ENOUGH, **fields)
    assert drafted(served) - before > 3 * ENOUGH, "most rounds had a tree"


@pytest.mark.few_cases()
async def test_rows_of_the_wrong_draft_are_seen(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: each draw is judged by the row from which it came. (Draws by the same numbers bias the text less,
    and are left to enumeration.)"""

    def swapped(proposals: Sequence[Proposal], max_nodes: int) -> Merged:
        one, other = proposals
        pairs = ((one, other.distributions), (other, one.distributions))
        return merge_proposals([Proposal(token_ids=p.token_ids, distributions=rows) for p, rows in pairs], max_nodes)

    monkeypatch.setattr(merged_session, "merge_proposals", swapped)
    counts = await draw(served.pair, PLAIN, ENOUGH_FOR_CONTROLS, rule=RULES["block"], drafts=["far", "near"])
    assert min(p_value(counts, served.model, PLAIN, length) for length in (2, 3)) < 1e-6
