"""A draft and a target that is like it, and their rounds, one call after the other."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from specpair.v1 import draft_service_pb2
from specpair.v1 import target_service_pb2 as target_pb
from tests.service.conditional import PROMPT, VOCABULARY
from tests.services import RunningModel, engine_config, running_draft, running_target
from tests.tiny_models import make_model, make_variation


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"), seed=1, vocab_size=VOCABULARY)


@pytest.fixture(scope="module")
async def target(folder: Path) -> AsyncIterator[RunningModel]:
    async with running_target(engine_config(folder)) as model:
        yield model


@pytest.fixture(scope="module")
async def draft(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningModel]:
    alike = make_variation(tmp_path_factory.mktemp("drafts") / "alike", folder, spread=0.05)
    async with running_draft(engine_config(alike)) as model:
        yield model


async def ordinary_rounds(
    draft: RunningModel, target: RunningModel, name: str, steps: int, count: int
) -> list[tuple[Any, Any]]:
    """The calls of each step, with proposals of `count` tokens, and their verdicts."""
    rounds: list[tuple[Any, Any]] = []
    base, appended = len(PROMPT), []
    for step in range(steps):
        proposed = await draft.hot.ProposeTokens(
            draft_service_pb2.ProposeTokensRequest(
                sequence_id=name,
                step=step,
                base_length=base,
                appended_token_ids=appended,
                num_speculative_tokens=count,
            )
        )
        length = base + len(appended)
        request = target_pb.VerifyProposalRequest(
            sequence_id=name, step=step, base_length=length, proposal=proposed.proposal, include_probabilities=True
        )
        verdict = await target.hot.VerifyProposal(request)
        kept = list(proposed.proposal.token_ids[: verdict.accepted_count])
        base, appended = length, [*kept, verdict.next_token_id]
        rounds.append((request, verdict))
    return rounds
