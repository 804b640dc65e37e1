"""The two model services as the coordinator calls them: plain data in and out, SpecpairErrors only."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from specpair.errors import (
    BaseLengthMismatchError,
    ConflictingBodyError,
    NotSupportedError,
    PeerUnavailableError,
    SequenceNotFoundError,
    ShuttingDownError,
    SpecpairError,
    StaleStepError,
    UnauthenticatedError,
)
from specpair.model_info import ModelInfo, TokenizerFiles
from specpair.options import SamplingOptions, SequenceOptions
from specpair.rpc.client import connect, proposal_caller, verification_caller
from specpair.rpc.messages import model_info_from_proto, open_request, sampling_to_proto
from specpair.rpc.security import PLAIN, ChannelSecurity
from specpair.rpc.status import TRANSPORT_CODE, peer_errors
from specpair.v1 import draft_service_pb2, logprobs_pb2, proposal_pb2, sequence_service_pb2, target_service_pb2
from specpair.v1.sequence_service_pb2_grpc import SequenceServiceStub
from specpair.v1.target_service_pb2_grpc import TargetServiceStub

LOST = (SequenceNotFoundError, BaseLengthMismatchError, StaleStepError, ConflictingBodyError)
"""The peer stands elsewhere than thought: the sequence is opened again from the history."""
AWAY = (PeerUnavailableError, ShuttingDownError)
"""The peer cannot be reached at present."""
MAX_TOKENIZER_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Proposed:
    """The draft's answer to one round."""

    proposal: proposal_pb2.Proposal
    """Passed on unopened; only its token ids are looked at."""
    compute_time_us: int
    elapsed_us: int
    """From the call to the answer, as seen from here."""
    queue_time_us: int = 0
    rollback_time_ns: int = 0
    """What the cache took to drop tokens that were rolled back."""
    started_at: float = 0.0
    """When the call was made, by time.perf_counter."""

    @property
    def token_ids(self) -> Sequence[int]:
        return self.proposal.token_ids


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The target's answer to one round."""

    accepted_count: int
    next_token_id: int
    compute_time_us: int
    elapsed_us: int
    batch_token_count: int = 1
    """Tokens in the target's forward pass, those of other sequences included."""
    logprobs: Sequence[logprobs_pb2.TokenLogprobs] = ()
    """One entry for each committed token, if the sequence was opened with logprobs."""
    queue_time_us: int = 0
    rollback_time_ns: int = 0
    """What the cache took to drop tokens that were rolled back."""
    started_at: float = 0.0
    """When the call was made, by time.perf_counter."""
    target_probabilities: Sequence[float] = ()
    """Of the proposed tokens, if asked for."""
    draft_probabilities: Sequence[float] = ()
    """The same; empty, too, where no distributions were sent."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """How likely the target finds each token of a text."""

    instance_id: str
    logprobs: Sequence[logprobs_pb2.TokenLogprobs]
    """One entry for each token but the first."""


@contextmanager
def answers() -> Iterator[None]:
    """Turns a peer's errors into ours. One that refuses our token is away: it is no fault of our client.

    So is one whose channel was closed under the call, which grpc.aio tells by cancelling it.
    """
    try:
        with peer_errors():
            yield
    except grpc.aio.UsageError:
        raise ShuttingDownError from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise PeerUnavailableError("the connection was closed") from None
    except UnauthenticatedError as error:
        raise PeerUnavailableError(error.message, **{TRANSPORT_CODE: error.reason}) from error


def is_out_of_time(error: SpecpairError) -> bool:
    """Whether a call only took too long: the peer keeps what it has come to, and the same call goes on there."""
    return "timeout" in error.metadata or error.metadata.get(TRANSPORT_CODE) == grpc.StatusCode.DEADLINE_EXCEEDED.name


def is_refusal(error: SpecpairError) -> bool:
    """Whether the peer answered that it does not know our token."""
    return error.metadata.get(TRANSPORT_CODE) == UnauthenticatedError.reason


class ModelPeer:
    """What draft and target have in common: their sequences and their facts. Made inside the running loop.

    `within` is the time, in seconds, that a call may take; then it raises PeerUnavailableError.
    """

    def __init__(self, address: str, security: ChannelSecurity = PLAIN):
        """Raises InvalidFieldError for certificates and tokens that cannot be used."""
        self.address = address
        self.speaks_tls = security.tls is not None
        self.channel = connect(address, security)
        self._sequences = SequenceServiceStub(self.channel)
        self._health = HealthStub(self.channel)

    async def health(self) -> AsyncGenerator[bool, None]:
        """Whether the process serves: what it says now, and each time that changes. Ends or raises when it is gone."""
        with answers():
            watch: Any = self._health.Watch  # pyright: ignore[reportAttributeAccessIssue]: stubs lack it
            async for response in watch(HealthCheckRequest()):
                yield response.status == HealthCheckResponse.SERVING

    async def info(self, within: float) -> ModelInfo:
        with answers():
            request = sequence_service_pb2.GetModelInfoRequest()
            return model_info_from_proto(await self._sequences.GetModelInfo(request, timeout=within))

    async def tokenizer_files(self, within: float) -> TokenizerFiles | None:
        """The model's tokenizer; None if it has none."""
        try:
            with answers():
                return await self._fetch_tokenizer(within)
        except NotSupportedError:
            return None

    async def open(
        self,
        sequence_id: str,
        token_ids: Sequence[int],
        prompt_length: int,
        options: SequenceOptions,
        within: float,
    ) -> str:
        """Registers a sequence; returns the instance that holds it."""
        request = open_request(sequence_id, token_ids, prompt_length, options)
        with answers():
            response = await self._sequences.OpenSequence(request, timeout=within)
        return response.instance_id

    async def fork(
        self, sequence_id: str, forked_sequence_id: str, length: int, sampling: SamplingOptions, within: float
    ) -> str:
        """Registers a copy of the first `length` tokens with options of its own; returns the instance that holds it."""
        request = sequence_service_pb2.ForkSequenceRequest(
            sequence_id=sequence_id,
            forked_sequence_id=forked_sequence_id,
            length=length,
            sampling=sampling_to_proto(sampling),
        )
        with answers():
            response = await self._sequences.ForkSequence(request, timeout=within)
        return response.instance_id

    async def close_sequence(self, sequence_id: str, within: float) -> None:
        request = sequence_service_pb2.CloseSequenceRequest(sequence_id=sequence_id)
        with answers():
            await self._sequences.CloseSequence(request, timeout=within)

    async def close(self) -> None:
        """Ends the connection."""
        await self.channel.close()

    async def _fetch_tokenizer(self, within: float) -> TokenizerFiles:
        pieces: list[sequence_service_pb2.GetTokenizerResponse] = []
        size = 0
        async for piece in self._sequences.GetTokenizer(sequence_service_pb2.GetTokenizerRequest(), timeout=within):
            pieces.append(piece)
            size += len(piece.tokenizer_json_chunk)
            if size > MAX_TOKENIZER_BYTES:
                raise SpecpairError(f"the tokenizer of {self.address} has more than {MAX_TOKENIZER_BYTES} bytes")
        first = pieces[0] if pieces else sequence_service_pb2.GetTokenizerResponse()
        return TokenizerFiles(
            tokenizer_json=b"".join(piece.tokenizer_json_chunk for piece in pieces),
            chat_template=first.chat_template,
            bos_token=first.bos_token,
            eos_token=first.eos_token,
        )


class DraftPeer(ModelPeer):
    """The draft service."""

    def __init__(self, address: str, security: ChannelSecurity = PLAIN):
        super().__init__(address, security)
        self._proposals = proposal_caller(self.channel)

    async def propose(
        self,
        sequence_id: str,
        step: int,
        base_length: int,
        appended: Sequence[int],
        count: int,
        within: float,
        min_confidence: float = 0.0,
    ) -> Proposed:
        """Proposes up to `count` tokens behind `base_length` tokens that the draft holds and `appended` ones.

        It stops behind tokens to which it gives together a probability below `min_confidence`.
        """
        request = draft_service_pb2.ProposeTokensRequest(
            sequence_id=sequence_id,
            step=step,
            base_length=base_length,
            appended_token_ids=appended,
            num_speculative_tokens=count,
            min_confidence=min_confidence,
        )
        start = time.perf_counter()
        response = await self._proposals.call(request, within)
        return Proposed(
            proposal=response.proposal,
            compute_time_us=response.compute_time_us,
            elapsed_us=elapsed_us(start),
            queue_time_us=response.queue_time_us,
            rollback_time_ns=response.rollback_time_ns,
            started_at=start,
        )

    async def close(self) -> None:
        await self._proposals.close()
        await super().close()


class TargetPeer(ModelPeer):
    """The target service."""

    def __init__(self, address: str, security: ChannelSecurity = PLAIN):
        super().__init__(address, security)
        self._verifications = verification_caller(self.channel)
        self._stub = TargetServiceStub(self.channel)

    async def verify(
        self,
        sequence_id: str,
        step: int,
        base_length: int,
        proposal: proposal_pb2.Proposal | None,
        within: float,
        include_probabilities: bool = False,
    ) -> Verdict:
        """Judges a proposal behind `base_length` tokens that the target holds; without one: the next token."""
        request = target_service_pb2.VerifyProposalRequest(
            sequence_id=sequence_id,
            step=step,
            base_length=base_length,
            proposal=proposal,
            include_probabilities=include_probabilities,
        )
        start = time.perf_counter()
        response = await self._verifications.call(request, within)
        return Verdict(
            accepted_count=response.accepted_count,
            next_token_id=response.next_token_id,
            compute_time_us=response.compute_time_us,
            elapsed_us=elapsed_us(start),
            batch_token_count=response.batch_token_count,
            logprobs=[unpinned(entry) for entry in response.logprobs],
            queue_time_us=response.queue_time_us,
            rollback_time_ns=response.rollback_time_ns,
            started_at=start,
            target_probabilities=tuple(response.target_probabilities),
            draft_probabilities=tuple(response.draft_probabilities),
        )

    async def score(self, token_ids: Sequence[int], top_count: int, within: float) -> Scores:
        """The logprob of each token but the first, and of the `top_count` likeliest ones at its place."""
        request = target_service_pb2.ScoreTokensRequest(token_ids=token_ids, logprobs=top_count)
        with answers():
            response = await self._stub.ScoreTokens(request, timeout=within)
        return Scores(instance_id=response.instance_id, logprobs=response.logprobs)

    async def close(self) -> None:
        await self._verifications.close()
        await super().close()


def unpinned(entry: logprobs_pb2.TokenLogprobs) -> logprobs_pb2.TokenLogprobs:
    """A copy, which does not keep the message alive that the entry came in."""
    copy = logprobs_pb2.TokenLogprobs()
    copy.CopyFrom(entry)
    return copy


def elapsed_us(start: float) -> int:
    """Microseconds since a reading of time.perf_counter."""
    return round((time.perf_counter() - start) * 1e6)
