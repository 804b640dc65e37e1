"""Calls that come twice, late or out of order change nothing: not what clients get, nor what services answer."""

from pathlib import Path

import pytest

from specpair.client.channel import connect
from specpair.v1 import error_reason_pb2
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub
from tests.faults.cluster import free_port
from tests.faults.instance import Instance
from tests.faults.reference import read_reference
from tests.faults.repeater import repeater_before
from tests.faults.streams import Streams
from tests.faults.workload import make_cases
from tests.services import engine_config, running_draft, running_target
from tests.tiny_models import make_model, make_variation

VERIFICATIONS = "/specpair.v1.TargetService/StreamVerifications"
PROPOSALS = "/specpair.v1.DraftService/StreamProposals"
LEGAL = {"same", str(error_reason_pb2.ERROR_REASON_STALE_STEP), str(error_reason_pb2.ERROR_REASON_SEQUENCE_NOT_FOUND)}
"""What a repeated call may get: the answer that it got before, or word that it comes too late."""


@pytest.mark.timeout(240)
async def test_repeated_calls_change_nothing(tmp_path: Path) -> None:
    target = make_model(tmp_path / "target", "qwen3", max_position_embeddings=256)
    draft = make_variation(tmp_path / "draft", target, spread=0.1)
    cases = make_cases(seed=3, count=8, vocab_size=64, max_tokens=48)
    async with (
        running_target(engine_config(target, deterministic=True)) as target_service,
        running_draft(engine_config(draft)) as draft_service,
        repeater_before(target_service.address, 1) as (verifications, target_address),
        repeater_before(draft_service.address, 2) as (proposals, draft_address),
    ):
        flags = ["coordinator", "--target", target_address, "--draft", draft_address, "--http-port", "0"]
        coordinator = Instance("coordinator", flags, free_port(), tmp_path)
        try:
            await coordinator.start()
            await coordinator.wait_until_ready()
            async with connect(coordinator.address) as channel:
                stub = CoordinatorServiceStub(channel)
                streams = Streams(stub, cases, await read_reference(stub, cases), seed=1, patience=120.0)
                await streams.run(8, requests_each=6)
        finally:
            await coordinator.clean_up()
    assert streams.violations == []
    assert streams.difference.compared > 1000
    assert verifications.repeated[VERIFICATIONS] > 100
    assert proposals.repeated[PROPOSALS] > 20
    for repeater in (verifications, proposals):
        assert repeater.outcomes["same"] > 0
        assert set(repeater.outcomes) <= LEGAL, repeater.outcomes
