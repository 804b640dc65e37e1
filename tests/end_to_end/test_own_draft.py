"""Through three processes greedy and coupled text is the target's own, with a second model and without."""

from pathlib import Path
from typing import Any

import pytest

from specpair.v1 import coordinator_service_pb2 as pb
from tests.faults.cluster import ClusterConfig, running_cluster
from tests.faults.pairs import find_pair
from tests.faults.workload import Variation, make_cases

TOKENS = 48


async def ask(stub: Any, request: pb.GenerateTokensRequest) -> tuple[list[int], pb.SpeculationSummary]:
    """The tokens of the only output, and what speculation did for it."""
    responses = [response async for response in stub.GenerateTokens(request, timeout=60)]
    return [token.id for response in responses for token in response.tokens], responses[-1].summary.speculation


@pytest.mark.few_cases()
@pytest.mark.timeout(240)
async def test_an_accelerated_draft_changes_no_token(tmp_path: Path) -> None:
    pair = find_pair("tiny", tmp_path)
    cases = make_cases(5, 4, pair.vocab_size, TOKENS, least_tokens=TOKENS)
    assert {case.rule for case in cases if case.temperature > 0} == {"coupled"}
    texts: dict[str, list[list[int]]] = {}
    for own in ("none", str(pair.second)):
        config = ClusterConfig(
            folder=tmp_path,
            target_model=str(pair.target),
            draft_model=str(pair.draft),
            draft_flags=["--own-draft", own],
        )
        proposed = guessed = 0
        async with running_cluster(config) as cluster:
            for case in cases:
                for count in (0, 5):
                    request = case.request(Variation(num_speculative_tokens=count, deadline_seconds=60.0))
                    tokens, speculation = await ask(cluster.stub, request)
                    assert len(tokens) == TOKENS
                    texts.setdefault(f"{own} {count}", []).append(tokens)
                    proposed += speculation.draft_token_count
                    guessed += speculation.own_draft.accepted_guess_count
        assert proposed and bool(guessed) == (own != "none")
    first, *others = texts.values()
    assert all(text == first for text in others)
