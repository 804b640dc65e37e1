"""Any order of calls against both services and both caches finds the tokens of a fresh prefill.

A hypothesis state machine opens, proposes, verifies, rolls back, forks, closes, repeats and errs over real gRPC.
Sequences are greedy, so every answer can be told from the tokens alone, by the plain transformers model.
"""

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import cache as cache_results
from pathlib import Path
from typing import Any, ClassVar

import grpc
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from specpair.engine_config import EngineConfig
from specpair.v1 import draft_service_pb2, proposal_pb2, target_service_pb2
from specpair.v1 import sequence_service_pb2 as pb
from tests.services import RunningModel, engine_config, running_draft, running_target
from tests.tiny_models import load_plain, make_model

VOCABULARY = 16
MAX_LENGTH = 48
GREEDY = {"temperature": 0.0, "seed": 1}


class World:
    """One running service for all examples, on an event loop that runs while a call is made."""

    open_fields: ClassVar[dict[str, Any]] = {}
    """What sequences are opened with beside their tokens."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.stack = AsyncExitStack()
        self.opened = 0
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.model: RunningModel = self.run(self.stack.enter_async_context(self.start(folder)))

    def start(self, folder: Path) -> AbstractAsyncContextManager[RunningModel]:
        """The service, which may leave its files in the folder."""
        raise NotImplementedError

    def continue_greedily(self, tokens: list[int], count: int) -> list[int]:
        """What the service is to say behind the tokens; a draft says less where it does not know how to go on."""
        raise NotImplementedError

    def run(self, awaitable: Any) -> Any:
        return self.loop.run_until_complete(awaitable)

    def close(self) -> None:
        self.run(self.stack.aclose())
        self.loop.close()


class ModelWorld(World):
    """A service with a model."""

    def __init__(self, cache: str, is_target: bool) -> None:
        self.cache = cache
        self.is_target = is_target
        super().__init__()

    def start(self, folder: Path) -> AbstractAsyncContextManager[RunningModel]:
        self.next_token = make_oracle(folder)
        start = running_target if self.is_target else running_draft
        return start(small_config(folder, self.cache))

    def continue_greedily(self, tokens: list[int], count: int) -> list[int]:
        known = list(tokens)
        for _ in range(count):
            known.append(self.next_token(tuple(known)))
        return known[len(tokens) :]


def make_oracle(folder: Path) -> Callable[[tuple[int, ...]], int]:
    """Makes a model, and says what plain transformers chooses behind some tokens."""
    plain = load_plain(make_model(folder, seed=11, vocab_size=VOCABULARY))

    @cache_results
    def next_token(tokens: tuple[int, ...]) -> int:
        with torch.inference_mode():
            return int(plain(input_ids=torch.tensor([tokens])).logits[0, -1].argmax())

    return next_token


def small_config(folder: Path, cache: str) -> EngineConfig:
    return engine_config(folder, cache=cache, max_model_len=MAX_LENGTH, max_num_batched_tokens=16)


class Known:
    """What a sequence must hold, and its last hot call with its answer."""

    def __init__(self, name: str, tokens: list[int]) -> None:
        self.name = name
        self.tokens = tokens
        self.step = -1
        self.last: tuple[Any, Any] | None = None


token_lists = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=12)


class ServiceMachine(RuleBasedStateMachine):
    world: ClassVar[World]
    sequences = Bundle("sequences")

    def __init__(self) -> None:
        super().__init__()
        self.known: list[Known] = []

    def call(self, method: str, request: Any) -> Any:
        stub = self.world.model.sequences if hasattr(self.world.model.sequences, method) else self.world.model.hot
        return self.world.run(call_unary(stub, method, request))

    def refuse(self, method: str, request: Any, code: grpc.StatusCode) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            self.call(method, request)
        assert caught.value.code() is code, caught.value.details()

    @rule(target=sequences, tokens=token_lists)
    def open(self, tokens: list[int]) -> Known:
        self.world.opened += 1
        known = Known(f"s{self.world.opened}", tokens)
        request = pb.OpenSequenceRequest(
            sequence_id=known.name, token_ids=tokens, sampling=GREEDY, **self.world.open_fields
        )
        self.call("OpenSequence", request)
        self.call("OpenSequence", request)  # the same again is answered as before
        request.token_ids.append(0)
        self.refuse("OpenSequence", request, grpc.StatusCode.ALREADY_EXISTS)
        self.known.append(known)
        return known

    @rule(known=sequences, length=st.integers(1, MAX_LENGTH + 5))
    def rollback(self, known: Known, length: int) -> None:
        request = pb.RollbackSequenceRequest(sequence_id=known.name, length=length)
        if length > len(known.tokens):
            self.refuse("RollbackSequence", request, grpc.StatusCode.OUT_OF_RANGE)
        else:
            assert self.call("RollbackSequence", request).length == length
            del known.tokens[length:]
            known.last = None  # an answer that speaks of tokens that are gone is not given again

    @rule(target=sequences, known=sequences, share=st.floats(0, 1))
    def fork(self, known: Known, share: float) -> Known:
        self.world.opened += 1
        length = max(1, round(share * len(known.tokens)))
        forked = Known(f"s{self.world.opened}", known.tokens[:length])
        forked.step = known.step  # with the seed of the original go the steps that it has decided
        self.call(
            "ForkSequence",
            pb.ForkSequenceRequest(sequence_id=known.name, forked_sequence_id=forked.name, length=length),
        )
        self.known.append(forked)
        return forked

    @rule(known=consumes(sequences))
    def close(self, known: Known) -> None:
        request = pb.CloseSequenceRequest(sequence_id=known.name)
        self.call("CloseSequence", request)
        self.call("CloseSequence", request)
        self.refuse(
            "RollbackSequence",
            pb.RollbackSequenceRequest(sequence_id=known.name, length=1),
            grpc.StatusCode.NOT_FOUND,
        )
        self.known.remove(known)

    @rule(known=sequences)
    def repeat(self, known: Known) -> None:
        """The same step and body is answered from memory; another body or a past step is refused."""
        if known.last is None:
            return
        method, (request, response) = self.hot_method, known.last
        assert self.call(method, request) == response
        other = type(request)()
        other.CopyFrom(request)
        other.base_length += 1
        self.refuse(method, other, grpc.StatusCode.ALREADY_EXISTS)
        if known.step > 0:
            other.step = known.step - 1
            self.refuse(method, other, grpc.StatusCode.ABORTED)

    @rule(known=sequences)
    def count_on_too_much(self, known: Known) -> None:
        request = self.hot_request(known, len(known.tokens) + 1, [])
        self.refuse(self.hot_method, request, grpc.StatusCode.FAILED_PRECONDITION)

    @invariant()
    def cache_is_sound(self) -> None:
        self.world.run(self.world.model.check_integrity())

    def teardown(self) -> None:
        for known in self.known:
            self.call("CloseSequence", pb.CloseSequenceRequest(sequence_id=known.name))
        self.world.run(self.world.model.check_clean())

    hot_method: ClassVar[str]

    def hot_request(self, known: Known, base_length: int, appended: list[int]) -> Any:
        raise AssertionError("a machine drives the draft or the target")

    def move(self, known: Known, back: int, appended: list[int]) -> tuple[int, list[int]]:
        """A position that the caller moves to: some tokens back, some others on."""
        base = max(1, len(known.tokens) - back)
        room = MAX_LENGTH - 6 - base
        return base, appended[: max(0, room)]


class TargetMachine(ServiceMachine):
    hot_method = "VerifyProposal"

    def hot_request(self, known: Known, base_length: int, appended: list[int]) -> Any:
        return target_service_pb2.VerifyProposalRequest(
            sequence_id=known.name, step=known.step + 1, base_length=base_length, appended_token_ids=appended
        )

    @rule(
        known=ServiceMachine.sequences,
        back=st.integers(0, 6),
        appended=st.lists(st.integers(0, VOCABULARY - 1), max_size=6),
        right=st.integers(0, 5),
        wrong=st.integers(0, 2),
    )
    def verify(self, known: Known, back: int, appended: list[int], right: int, wrong: int) -> None:
        """A proposal whose first `right` tokens are the target's own, followed by wrong ones."""
        base, appended = self.move(known, back, appended)
        if base + len(appended) + right + wrong > MAX_LENGTH - 1:
            return
        tokens = [*known.tokens[:base], *appended]
        truth = self.world.continue_greedily(tokens, right + 1)
        proposal = [*truth[:right], *[(truth[right] + 1) % VOCABULARY] * wrong]
        request = self.hot_request(known, base, appended)
        request.proposal.CopyFrom(proposal_pb2.Proposal(token_ids=proposal))
        response = self.call(self.hot_method, request)
        assert (response.accepted_count, response.next_token_id) == (right, truth[right])
        known.tokens = [*tokens, *truth]
        assert response.length == len(known.tokens)
        known.step, known.last = request.step, (request, response)


class DraftMachine(ServiceMachine):
    hot_method = "ProposeTokens"

    def hot_request(self, known: Known, base_length: int, appended: list[int]) -> Any:
        return draft_service_pb2.ProposeTokensRequest(
            sequence_id=known.name,
            step=known.step + 1,
            base_length=base_length,
            appended_token_ids=appended,
            num_speculative_tokens=1,
        )

    @rule(
        known=ServiceMachine.sequences,
        back=st.integers(0, 6),
        kept=st.integers(0, 6),
        appended=st.lists(st.integers(0, VOCABULARY - 1), max_size=4),
        count=st.integers(1, 5),
    )
    def propose(self, known: Known, back: int, kept: int, appended: list[int], count: int) -> None:
        """After a position that may begin with what the draft proposed last, as in a real round."""
        proposed = known.last[1].proposal.token_ids if known.last else []
        base, appended = self.move(known, back, [*proposed[:kept], *appended])
        request = self.hot_request(known, base, appended)
        request.num_speculative_tokens = count
        response = self.call(self.hot_method, request)
        known.tokens = [*known.tokens[:base], *appended]
        room = MAX_LENGTH - len(known.tokens)
        expected = self.world.continue_greedily(known.tokens, min(count, room))
        assert list(response.proposal.token_ids) == expected
        assert response.proposal.distributions.WhichOneof("encoding") == ("one_hot" if expected else None)
        known.step, known.last = request.step, (request, response)


async def call_unary(stub: Any, method: str, request: Any) -> Any:
    return await getattr(stub, method)(request)


@pytest.mark.few_cases("TargetMachine-paged", "DraftMachine-contiguous")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("cache", ["contiguous", "paged"])
@pytest.mark.parametrize("machine", [TargetMachine, DraftMachine])
def test_any_order_of_calls(machine: type[ServiceMachine], cache: str) -> None:
    run_machine(machine, ModelWorld(cache, machine is TargetMachine))


def run_machine(machine: type[ServiceMachine], world: World) -> None:
    """Drives the service through examples, then stops it."""
    try:
        case = type(f"{machine.__name__}_in_{type(world).__name__}", (machine,), {"world": world}).TestCase
        case.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
        case().runTest()
    finally:
        world.close()
