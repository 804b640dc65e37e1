"""The servicer: what its messages say, and how many requests it lets in."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from coordinator.config import CoordinatorConfig
from coordinator.peers.recovery import Recovery
from coordinator.service import CoordinatorServicer
from coordinator.serving.call import Call
from coordinator.serving.serving import Serving
from specpair.errors import (
    CapacityExhaustedError,
    ForwardFailedError,
    InvalidFieldError,
    PeerUnavailableError,
    PromptTooLongError,
    SpecpairError,
    VocabularyMismatchError,
)
from specpair.options import Drafter
from specpair.server.config import ServerConfig
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from specpair.v1.drafter_pb2 import DRAFTER_BIGRAM, DRAFTER_NGRAM, DRAFTER_UNIGRAM, DRAFTER_UNSPECIFIED
from tests.unit.coordinator.fake_language import continuation, logprob
from tests.unit.coordinator.fake_sequences import model_info
from tests.unit.coordinator.pair_bench import Bench, bench, until

CONFIG = CoordinatorConfig(
    server=ServerConfig(port=0),
    target_addresses=("target:1",),
    draft_addresses=("draft:1",),
    max_requests=2,
    max_queued_requests=0,
)


class NoContext:
    """Of a call without metadata."""

    def __init__(self, remaining: float | None = None) -> None:
        self._remaining = remaining

    def time_remaining(self) -> float | None:
        return self._remaining

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()


NO_CONTEXT = NoContext()


class Service:
    """A servicer over fakes, called without gRPC."""

    def __init__(self, fakes: Bench) -> None:
        self.target, self.draft = fakes.target, fakes.draft
        self.pair = replace(fakes.pair, config=CONFIG)
        assert self.pair.draft is not None
        (self.link,) = self.pair.draft.links.values()
        self.servicer = CoordinatorServicer(Serving(self.pair))

    def generate(self, **fields: object):
        message = pb.GenerateTokensRequest(**{"token_ids": {"ids": [5, 17, 3]}, "max_tokens": 10, **fields})  # type: ignore[arg-type]
        return self.servicer.GenerateTokens(message, NO_CONTEXT)  # type: ignore[arg-type]

    async def closed(self) -> None:
        """Draft and target have their places back from the outputs that have ended: only then others may have them."""
        await self.pair.background.drain(5)
        await asyncio.sleep(0)

    async def info(self) -> pb.GetPairInfoResponse:
        return await self.servicer.GetPairInfo(pb.GetPairInfoRequest(), NO_CONTEXT)  # type: ignore[arg-type]


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with bench() as fakes:
        yield Service(fakes)


@pytest.mark.parametrize("remaining", [0.19, 60.0])
async def test_a_client_with_little_time_has_nearly_all_of_it(service: Service, remaining: float) -> None:
    message = pb.GenerateTokensRequest(token_ids={"ids": [5, 17, 3]}, max_tokens=3)  # type: ignore[arg-type]
    context: Any = NoContext(remaining)
    responses = [response async for response in service.servicer.GenerateTokens(message, context)]
    assert sum(len(response.tokens) for response in responses) == 3


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


async def test_the_drafter_is_passed_on_and_reported(service: Service) -> None:
    async def drafter(**fields: object) -> int:
        return [r async for r in service.generate(**fields)][-1].summary.speculation.drafter

    assert await drafter() == DRAFTER_UNSPECIFIED, "nobody knows what the draft chooses"
    service.draft.model = model_info(drafters=(Drafter.NGRAM, Drafter.BIGRAM))
    await service.link.check()
    assert await drafter(num_speculative_tokens=2) == DRAFTER_NGRAM
    assert await drafter(num_speculative_tokens=2, drafter=DRAFTER_BIGRAM) == DRAFTER_BIGRAM
    assert await drafter(num_speculative_tokens=0) == DRAFTER_UNSPECIFIED, "none was asked"
    assert [options.drafter for options in service.draft.options] == [None, None, Drafter.BIGRAM]
    with pytest.raises(InvalidFieldError, match="drafter: is unigram; the draft has ngram, bigram"):
        await drafter(drafter=DRAFTER_UNIGRAM)


async def test_a_drawn_seed_is_reported(service: Service) -> None:
    seeds = {[r async for r in service.generate()][-1].summary.seed for _ in range(2)}
    assert len(seeds) == 2


async def test_no_more_requests_than_allowed(service: Service) -> None:
    first, second = service.generate(), service.generate()
    await anext(first)
    await anext(second)
    with pytest.raises(CapacityExhaustedError, match="the request needs 1 of 2 places; 2 are taken"):
        await anext(service.generate())
    assert (await service.info()).request_count == 2
    await first.aclose()
    await service.closed()
    third = service.generate()
    await anext(third)
    await third.aclose()
    await second.aclose()


async def test_every_output_takes_a_place(service: Service) -> None:
    first = service.generate(n=1, best_of=2)
    await anext(first)
    with pytest.raises(CapacityExhaustedError, match="the request needs 1 of 2 places; 2 are taken"):
        await anext(service.generate(text="refused before it is looked at"))
    assert (await service.info()).request_count == 1
    await first.aclose()
    await service.closed()
    second = service.generate()
    await anext(second)
    with pytest.raises(CapacityExhaustedError, match="the request needs 2 of 2 places; 1 are taken"):
        await anext(service.generate(n=2))
    await second.aclose()
    with pytest.raises(InvalidFieldError, match="n: is 3; it must be between 1 and 2"):
        await anext(service.generate(n=3))


async def test_the_messages_of_several_outputs(service: Service) -> None:
    by_choice: dict[int, list[pb.GenerateTokensResponse]] = {}
    async for response in service.generate(n=2, sampling={"seed": 9}, num_speculative_tokens=4):
        by_choice.setdefault(response.choice_index, []).append(response)
    for index in range(2):
        responses = by_choice[index]
        assert [t.id for r in responses for t in r.tokens] == continuation((5, 17, 3), 10, seed=9 + index)
        assert [r.HasField("summary") for r in responses] == [False] * (len(responses) - 1) + [True]
        assert responses[-1].summary.seed == 9 + index


async def test_logprobs_are_reported_if_asked_for_and_summed_up_for_the_best(service: Service) -> None:
    asked = [r async for r in service.generate(logprobs=1)]
    values = [token.logprobs.logprob for r in asked for token in r.tokens]
    assert values == pytest.approx([logprob(3 + i, t.id) for i, t in enumerate(t for r in asked for t in r.tokens)])
    assert asked[-1].summary.cumulative_logprob == pytest.approx(sum(values))
    best = [r async for r in service.generate(best_of=2)]
    assert {r.choice_index for r in best} == {0}
    assert best[-1].summary.HasField("cumulative_logprob")
    assert not any(token.HasField("logprobs") for r in best for token in r.tokens)
    plain = [r async for r in service.generate()]
    assert not plain[-1].summary.HasField("cumulative_logprob")


async def test_the_prompt_comes_once_with_its_scores(service: Service) -> None:
    responses = [r async for r in service.generate(n=2, prompt_logprobs=1)]
    prompt = responses[0].prompt_tokens
    assert [(token.id, token.origin) for token in prompt] == [(i, pb.TOKEN_ORIGIN_PROMPT) for i in (5, 17, 3)]
    assert not prompt[0].HasField("logprobs")
    assert [token.logprobs.logprob for token in prompt[1:]] == pytest.approx([logprob(1, 17), logprob(2, 3)])
    assert not any(r.prompt_tokens for r in responses[1:])


async def test_an_echo_needs_no_scores(service: Service) -> None:
    responses = [r async for r in service.generate(echo=True)]
    assert [token.id for token in responses[0].prompt_tokens] == [5, 17, 3]
    assert not any(token.HasField("logprobs") for token in responses[0].prompt_tokens)
    assert service.target.score_faults.count == 0


async def test_a_target_that_is_away_is_asked_for_scores_again(service: Service) -> None:
    service.target.score_faults.before = {0: PeerUnavailableError("away")}
    service.target.score_faults.after = {1: PeerUnavailableError("away")}
    prompt, end = [r async for r in service.generate(max_tokens=0, prompt_logprobs=0)]
    assert prompt.prompt_tokens[2].logprobs.logprob == pytest.approx(logprob(2, 3))
    assert end.summary.finish_reason == pb.FINISH_REASON_LENGTH
    assert not service.target.opened
    assert service.pair.target.recoveries[Recovery.REPEATED] == 2


async def test_scores_are_made_good_as_verdicts_are(service: Service) -> None:
    service.target.score_faults.before = {0: ForwardFailedError(), 1: CapacityExhaustedError("full")}
    first, *_ = [response async for response in service.generate(prompt_logprobs=1)]
    assert len(first.prompt_tokens) == 3
    await service.closed()
    service.target.score_faults.before = dict.fromkeys(range(100), ForwardFailedError())
    with pytest.raises(ForwardFailedError):
        await anext(service.generate(prompt_logprobs=1))


@pytest.mark.parametrize("extra", [-1, 1])
async def test_scores_of_another_length_fail_the_request(service: Service, extra: int) -> None:
    service.target.extra_logprobs = extra
    with pytest.raises(SpecpairError, match=f"the target sent {2 + extra} scores for 3 tokens"):
        await anext(service.generate(prompt_logprobs=0))


async def test_scores_of_another_model_fail_the_request(service: Service) -> None:
    service.target.model = model_info("other", vocab_size=50)
    with pytest.raises(VocabularyMismatchError):
        await anext(service.generate(max_tokens=0, prompt_logprobs=0))


async def test_a_target_that_comes_back_brings_its_places_to_those_who_wait() -> None:
    async with bench(target_count=2) as fakes:
        for target, link in zip(fakes.targets, fakes.pair.target.links.values(), strict=True):
            target.model = replace(target.model, max_num_seqs=1)
            await link.check()
        config = replace(CONFIG, max_requests=8, max_queued_requests=8)
        serving = Serving(replace(fakes.pair, config=config))
        message = pb.GenerateTokensRequest(token_ids={"ids": [5, 17, 3]}, max_tokens=10)  # type: ignore[arg-type]
        fakes.targets[1].say_health(is_serving=False)
        await until(lambda: serving.output_limit == 1)
        async with aclosing(serving.generate(Call(request=message))) as running:
            await anext(running)
            waiting = asyncio.create_task(anext(serving.generate(Call(request=message))))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            fakes.targets[1].say_health(is_serving=True)
            async with asyncio.timeout(5):
                assert (await waiting).tokens


async def test_a_lossy_output_is_called_so(service: Service) -> None:
    speculation = [r async for r in service.generate(lenience=0.5)][-1].summary.speculation
    assert (speculation.lossy, speculation.lenience) == (True, 0.5)
    assert speculation.rule == sampling_pb2.ACCEPTANCE_RULE_TOKEN
    exact = [r async for r in service.generate()][-1].summary.speculation
    assert (exact.lossy, exact.lenience) == (False, 1.0)


async def test_a_refused_request_gives_its_place_back(service: Service) -> None:
    for _ in range(3):
        with pytest.raises(PromptTooLongError):
            await anext(service.generate(token_ids={"ids": [1] * 200}))
    assert (await service.info()).request_count == 0


async def test_the_pair_is_described_as_it_is_now(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    info = await service.info()
    assert (info.draft.model_name, info.target.vocab_size) == ("fake", 97)
    assert not info.HasField("num_speculative_tokens"), "it is decided anew for each round"
    assert info.max_num_speculative_tokens == 16

    async def away(within: float) -> object:
        raise PeerUnavailableError("away")

    monkeypatch.setattr(service.draft, "info", away)
    info = await service.info()
    assert not info.HasField("draft") and info.HasField("target")


async def test_every_request_leaves_one_log_line(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "coordinator.serving.accounts")
    async for _ in service.generate():
        pass
    responses = service.generate()
    await anext(responses)
    await responses.aclose()
    messages = [record.getMessage() for record in caplog.records if record.name == "coordinator.serving.accounts"]
    assert messages == ["request finished", "request cancelled"]
    assert vars(caplog.records[0])["completion_tokens"] == 10
