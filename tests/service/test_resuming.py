"""Outputs that go on after their coordinator went away: nothing twice, nothing lost, nothing changed."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import grpc
import grpc.aio
import pytest

from specpair.client.channel import connect
from specpair.client.resuming import generate_tokens
from specpair.errors import (
    CapacityExhaustedError,
    InvalidFieldError,
    PeerUnavailableError,
    ShuttingDownError,
    StartingError,
)
from specpair.rpc.status import peer_errors
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub
from tests.services import RunningPair, engine_config, running_pair
from tests.tiny_models import make_model, make_variation

PROMPT = [3, 14, 15, 9, 2, 6]
RULES = {
    "greedy": {"temperature": 0.0},
    "coupled": {"rule": sampling_pb2.ACCEPTANCE_RULE_COUPLED, "repetition_penalty": 1.3, "min_tokens": 30},
}


@pytest.fixture(scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningPair]:
    folder = tmp_path_factory.mktemp("models")
    target = make_model(folder / "target", seed=1, vocab_size=100)
    draft = make_variation(folder / "draft", target, spread=0.03)
    async with running_pair(engine_config(target), engine_config(draft)) as running:
        yield running


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("received", [1, 2, 7, 39, 40])
async def test_a_resumed_output_goes_on_as_it_would_have(pair: RunningPair, rule: str, received: int) -> None:
    options = {"seed": 5, "num_speculative_tokens": 3, **RULES[rule]}
    whole = await pair.generate(PROMPT, 40, **options)
    rest = await pair.generate(PROMPT, 40, resumed_token_ids=whole.token_ids[:received], **options)
    assert rest.token_ids == whole.token_ids[received:]
    assert rest.summary.completion_token_count == 40 - received
    assert rest.summary.finish_reason == pb.FINISH_REASON_LENGTH


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"resumed_token_ids": [1]}, "sampling.seed: must be set"),
        ({"resumed_token_ids": [1], "seed": 1, "n": 2}, "best_of: is 2"),
        ({"resumed_token_ids": [1] * 9, "seed": 1}, "resumed_token_ids: has 9 entries; at most 8"),
        ({"resumed_token_ids": [10**6], "seed": 1}, "resumed_token_ids: holds 1000000"),
    ],
)
async def test_what_cannot_be_resumed_is_refused(pair: RunningPair, options: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidFieldError, match=words), peer_errors():
        await pair.generate(PROMPT, 8, **options)


class Breaking:
    """A stub whose calls break off after some answers, as those to a coordinator that is killed."""

    def __init__(self, stub: CoordinatorServiceStub, answers: list[int]):
        self._stub = stub
        self._answers = answers
        self.requests: list[pb.GenerateTokensRequest] = []

    async def GenerateTokens(
        self, request: pb.GenerateTokensRequest, metadata: object
    ) -> AsyncIterator[pb.GenerateTokensResponse]:
        sent = pb.GenerateTokensRequest()
        sent.CopyFrom(request)
        self.requests.append(sent)
        left = self._answers.pop(0) if self._answers else 10**6
        async for response in self._stub.GenerateTokens(request):
            if not left:
                raise PeerUnavailableError("killed")
            left -= 1
            yield response


@pytest.mark.parametrize("rule", RULES)
async def test_the_client_resumes_by_itself(pair: RunningPair, rule: str) -> None:
    options = {"seed": 11, "num_speculative_tokens": 3, **RULES[rule]}
    whole = await pair.generate(PROMPT, 40, **options)
    request = pb.GenerateTokensRequest(token_ids=pb.TokenIds(ids=PROMPT), max_tokens=40, num_speculative_tokens=3)
    request.sampling.seed = 11
    for name, value in RULES[rule].items():
        setattr(request if name == "rule" else request.sampling, name, value)
    async with connect(pair.address) as channel:
        stub = Breaking(CoordinatorServiceStub(channel), [3, 1, 2])
        responses = [response async for response in generate_tokens(stub, request)]
    assert [token.id for response in responses for token in response.tokens] == whole.token_ids
    summary = responses[-1].summary
    assert 0 < summary.completion_token_count == 40 - summary.resumed_token_count < 40
    assert len(stub.requests) == 4
    lengths = [len(sent.resumed_token_ids) for sent in stub.requests]
    assert lengths == sorted(set(lengths)), "each call goes on behind the one before"


async def test_without_a_first_answer_nothing_is_resumed(pair: RunningPair) -> None:
    request = pb.GenerateTokensRequest(token_ids=pb.TokenIds(ids=PROMPT), max_tokens=4)
    async with connect(pair.address) as channel:
        stub = Breaking(CoordinatorServiceStub(channel), [0])
        with pytest.raises(PeerUnavailableError, match="killed"):
            async for _ in generate_tokens(stub, request):
                pass
    assert len(stub.requests) == 1


class Between:
    """A stub whose first calls come to a coordinator that stops or starts, and the later ones to one that serves."""

    def __init__(self, stub: CoordinatorServiceStub, refusals: list[Exception]):
        self._stub = stub
        self._refusals = refusals

    async def GenerateTokens(
        self, request: pb.GenerateTokensRequest, metadata: object
    ) -> AsyncIterator[pb.GenerateTokensResponse]:
        if self._refusals:
            raise self._refusals.pop(0)
        async for response in self._stub.GenerateTokens(request):
            yield response


def cancelled() -> grpc.aio.AioRpcError:
    """What gRPC itself answers to a call that comes just when its server stops."""
    return grpc.aio.AioRpcError(grpc.StatusCode.CANCELLED, grpc.aio.Metadata(), grpc.aio.Metadata())


@pytest.mark.parametrize("refusal", [ShuttingDownError, StartingError, cancelled])
@pytest.mark.parametrize("n", [1, 2])
async def test_who_comes_between_two_coordinators_is_served_by_the_second(
    pair: RunningPair, refusal: Callable[[], Exception], n: int
) -> None:
    request = pb.GenerateTokensRequest(token_ids=pb.TokenIds(ids=PROMPT), max_tokens=4, n=n)
    async with connect(pair.address) as channel:
        stub = Between(CoordinatorServiceStub(channel), [refusal(), PeerUnavailableError("it is not there yet")])
        responses = [response async for response in generate_tokens(stub, request)]
    assert sum(len(response.tokens) for response in responses) == 4 * n


async def test_a_resumed_request_comes_no_sooner_than_it_is_told(pair: RunningPair) -> None:
    request = pb.GenerateTokensRequest(token_ids=pb.TokenIds(ids=PROMPT), max_tokens=4)
    begun: list[float] = []

    class Full(Breaking):
        async def GenerateTokens(
            self, request: pb.GenerateTokensRequest, metadata: object
        ) -> AsyncIterator[pb.GenerateTokensResponse]:
            begun.append(time.monotonic())
            if len(begun) == 2:
                raise CapacityExhaustedError("full", retry_after=0.7)
            async for response in super().GenerateTokens(request, metadata):
                yield response

    async with connect(pair.address) as channel:
        stub = Full(CoordinatorServiceStub(channel), [1])
        tokens = [token async for response in generate_tokens(stub, request) for token in response.tokens]
    assert len(tokens) == 4
    assert begun[2] - begun[1] > 0.7


async def test_the_end_of_the_call_is_waited_for(pair: RunningPair) -> None:
    """A client that leaves at the summary looks as if it had not wanted the rest."""
    request = pb.GenerateTokensRequest(token_ids=pb.TokenIds(ids=PROMPT), max_tokens=4)
    ends: list[str] = []

    class Ending:
        def __init__(self, stub: CoordinatorServiceStub, is_cut_off: bool):
            self._stub = stub
            self._is_cut_off = is_cut_off

        async def GenerateTokens(
            self, request: pb.GenerateTokensRequest, metadata: object
        ) -> AsyncIterator[pb.GenerateTokensResponse]:
            async for response in self._stub.GenerateTokens(request):
                yield response
            ends.append("read")
            if self._is_cut_off:
                raise PeerUnavailableError("killed behind the summary")

    async with connect(pair.address) as channel:
        for is_cut_off in (False, True):
            stub = Ending(CoordinatorServiceStub(channel), is_cut_off)
            tokens = [token async for response in generate_tokens(stub, request) for token in response.tokens]
            assert len(tokens) == 4
    assert ends == ["read", "read"]


async def test_a_client_that_leaves_with_all_that_it_wanted_has_not_cancelled(pair: RunningPair) -> None:
    registry = pair.front_end.registry

    def count(outcome: str) -> float:
        return registry.get_sample_value("specpair_requests_total", {"outcome": outcome}) or 0.0

    finished, cancelled = count("finished"), count("cancelled")
    for _ in range(20):
        request = pb.GenerateTokensRequest(token_ids=pb.TokenIds(ids=PROMPT), max_tokens=4)
        call = pair.coordinator.GenerateTokens(request)
        while not (await call.read()).HasField("summary"):
            pass
        call.cancel()
    await pair.check_clean()
    async with asyncio.timeout(60):
        while count("finished") + count("cancelled") < finished + cancelled + 20:
            await asyncio.sleep(0.01)
    assert count("cancelled") == cancelled


async def test_patience_begins_when_the_coordinator_went_away(pair: RunningPair) -> None:
    """A stream may be silent for long before, such as while its target is away."""
    request = pb.GenerateTokensRequest(token_ids=pb.TokenIds(ids=PROMPT), max_tokens=4)

    class Silent(Breaking):
        async def GenerateTokens(
            self, request: pb.GenerateTokensRequest, metadata: object
        ) -> AsyncIterator[pb.GenerateTokensResponse]:
            try:
                async for response in super().GenerateTokens(request, metadata):
                    yield response
            except PeerUnavailableError:
                await asyncio.sleep(0.7)
                raise

    async with connect(pair.address) as channel:
        stub = Silent(CoordinatorServiceStub(channel), [1])
        tokens = [t async for response in generate_tokens(stub, request, patience=0.5) for t in response.tokens]
    assert len(tokens) == 4


async def test_nobody_waits_for_a_successor_for_ever(pair: RunningPair) -> None:
    request = pb.GenerateTokensRequest(token_ids=pb.TokenIds(ids=PROMPT), max_tokens=4)
    async with connect(pair.address) as channel:
        stub = Between(CoordinatorServiceStub(channel), [ShuttingDownError() for _ in range(1000)])
        with pytest.raises(ShuttingDownError):
            async for _ in generate_tokens(stub, request, patience=0.2):
                pass


async def test_the_prompt_is_repeated_once_and_one_summary_ends_it(pair: RunningPair) -> None:
    request = pb.GenerateTokensRequest(token_ids=pb.TokenIds(ids=PROMPT), max_tokens=4, echo=True)
    async with connect(pair.address) as channel:
        stub = Breaking(CoordinatorServiceStub(channel), [1, 0, 1, 2])
        responses = [response async for response in generate_tokens(stub, request)]
    assert [token.id for response in responses for token in response.prompt_tokens] == PROMPT
    assert sum(len(response.tokens) for response in responses) == 4
    assert [response.HasField("summary") for response in responses] == [False] * (len(responses) - 1) + [True]
