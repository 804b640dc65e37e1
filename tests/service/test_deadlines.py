"""A client's deadline, over real gRPC: it hears in time, and the work for it ends."""

import asyncio
import time
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from specpair.v1.coordinator_service_pb2 import GenerateTokensRequest, TokenIds
from tests.service.test_logprobs import VOCABULARY
from tests.service.test_scoring import BUDGET, TEXT, stopping_before, wanted
from tests.services import engine_config, running_pair
from tests.tiny_models import make_model

PATIENCE = 2.0


@pytest.mark.parametrize("scores", [False, True])
async def test_nothing_is_computed_for_a_client_whose_time_is_over(scores: bool, tmp_path: Path) -> None:
    """A forward pass that hangs keeps the text from being read; what is left of it is not read afterwards."""
    config = engine_config(make_model(tmp_path, vocab_size=VOCABULARY), max_num_batched_tokens=BUDGET)
    async with running_pair(config) as pair:
        fed = pair.target.host.engine.statistics.batch_tokens
        extra: dict[str, Any] = {"prompt_logprobs": 1} if scores else {}
        request = GenerateTokensRequest(token_ids=TokenIds(ids=TEXT), max_tokens=5, **extra)
        with stopping_before(pair.target, 2 * BUDGET):
            start = time.monotonic()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in pair.coordinator.GenerateTokens(request, timeout=PATIENCE):
                    pass
            assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
            assert time.monotonic() - start < PATIENCE + 1.0
            async with asyncio.timeout(20):
                while wanted(pair.target) or (not scores and len(pair.target.host.sequences)):
                    await asyncio.sleep(0.01)
        await pair.target.check_integrity()
        assert fed.total <= 3 * BUDGET, "the pass that was under way is the last one"
        if not scores:  # an unfinished score is kept, for the same call again
            await pair.check_clean()
