"""The servicer: what its messages say, and how many requests it lets in."""

import logging

import pytest

from coordinator.config import CoordinatorConfig
from coordinator.draft_link import DraftLink
from coordinator.pair import Pair
from coordinator.service import CoordinatorServicer
from coordinator.target_link import TargetLink
from specpair.errors import CapacityExhaustedError, PeerUnavailableError, PromptTooLongError
from specpair.rpc.config import ServerConfig
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from tests.unit.coordinator_peers import FakeDraft, FakeTarget, continuation, model_info

CONFIG = CoordinatorConfig(
    server=ServerConfig(port=0), target_address="target:1", draft_address="draft:1", max_requests=2
)
NO_CONTEXT: object = None


class Service:
    """A servicer over fakes, called without gRPC."""

    def __init__(self) -> None:
        self.target, self.draft = FakeTarget(model_info()), FakeDraft(model_info())
        link = TargetLink(self.target, self.target.model, None, None)
        self.link = DraftLink(self.draft, link, CONFIG)
        self.pair = Pair(config=CONFIG, target=link, draft=self.link)
        self.servicer = CoordinatorServicer(self.pair)

    def generate(self, **fields: object):
        message = pb.GenerateTokensRequest(**{"token_ids": {"ids": [5, 17, 3]}, "max_tokens": 10, **fields})  # type: ignore[arg-type]
        return self.servicer.GenerateTokens(message, NO_CONTEXT)  # type: ignore[arg-type]

    async def info(self) -> pb.GetPairInfoResponse:
        return await self.servicer.GetPairInfo(pb.GetPairInfoRequest(), NO_CONTEXT)  # type: ignore[arg-type]


@pytest.fixture
async def service() -> Service:
    service = Service()
    await service.link.check()
    return service


async def test_the_messages_of_a_request(service: Service) -> None:
    responses = [
        r async for r in service.generate(num_speculative_tokens=4, sampling={"seed": 9}, include_rejected=True)
    ]
    tokens = [token for response in responses for token in response.tokens]
    assert [token.id for token in tokens] == continuation((5, 17, 3), 10, seed=9)
    assert [token.origin for token in tokens[:3]] == [
        pb.TOKEN_ORIGIN_TARGET,
        pb.TOKEN_ORIGIN_ACCEPTED,
        pb.TOKEN_ORIGIN_CORRECTION,
    ]
    assert [token.origin for token in responses[1].rejected] == [pb.TOKEN_ORIGIN_REJECTED] * 3
    assert [response.HasField("summary") for response in responses] == [False, False, False, True]
    summary = responses[-1].summary
    assert (summary.prompt_token_count, summary.completion_token_count, summary.seed) == (3, 10, 9)
    assert summary.finish_reason == pb.FINISH_REASON_LENGTH
    assert 0 < summary.time_to_first_token_us <= summary.total_time_us
    speculation = summary.speculation
    assert (speculation.round_count, speculation.draft_round_count) == (3, 3)
    assert (speculation.draft_token_count, speculation.accepted_token_count) == (9, 6)
    assert list(speculation.drafted_per_position) == [3, 2, 2, 2]
    assert list(speculation.accepted_per_position) == [3, 1, 1, 1]
    assert speculation.acceptance_rate == pytest.approx(6 / 9)
    assert speculation.tokens_per_round == 3.0
    assert (speculation.draft_time_us, speculation.verify_time_us, speculation.network_time_us) == (30, 30, 9)
    assert speculation.rule == sampling_pb2.ACCEPTANCE_RULE_BLOCK


async def test_rejected_proposals_come_only_if_asked_for(service: Service) -> None:
    assert not any([response.rejected async for response in service.generate()])


async def test_a_drawn_seed_is_reported(service: Service) -> None:
    seeds = {[r async for r in service.generate()][-1].summary.seed for _ in range(2)}
    assert len(seeds) == 2


async def test_no_more_requests_than_allowed(service: Service) -> None:
    first, second = service.generate(), service.generate()
    await anext(first)
    await anext(second)
    with pytest.raises(CapacityExhaustedError, match="2 outputs are running and 1 more are wanted; 2 are allowed"):
        await anext(service.generate())
    assert (await service.info()).request_count == 2
    await first.aclose()
    await anext(service.generate())
    await second.aclose()


async def test_a_refused_request_gives_its_place_back(service: Service) -> None:
    for _ in range(3):
        with pytest.raises(PromptTooLongError):
            await anext(service.generate(token_ids={"ids": [1] * 200}))
    assert (await service.info()).request_count == 0


async def test_the_pair_is_described_as_it_is_now(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    info = await service.info()
    assert (info.draft.model_name, info.target.vocab_size) == ("fake", 97)
    assert (info.num_speculative_tokens, info.max_num_speculative_tokens) == (5, 16)

    async def away(within: float) -> object:
        raise PeerUnavailableError("away")

    monkeypatch.setattr(service.draft, "info", away)
    info = await service.info()
    assert not info.HasField("draft") and info.HasField("target")


async def test_every_request_leaves_one_log_line(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "coordinator.service")
    async for _ in service.generate():
        pass
    responses = service.generate()
    await anext(responses)
    await responses.aclose()
    messages = [record.getMessage() for record in caplog.records if record.name == "coordinator.service"]
    assert messages == ["request finished", "request cancelled"]
    assert vars(caplog.records[0])["completion_tokens"] == 10
