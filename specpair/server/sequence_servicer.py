"""SequenceService for any host of sequences, the draft's or the target's."""

from collections.abc import AsyncIterator
from typing import NoReturn, Protocol

import grpc
import grpc.aio

from specpair.errors import InvalidFieldError, NotSupportedError, PromptTooLongError
from specpair.model_info import ModelInfo, TokenizerFiles
from specpair.options import SamplingOptions, SequenceOptions, check_count, check_range
from specpair.rpc.messages import (
    check_sequence_id,
    model_info_to_proto,
    sampling_from_proto,
    sequence_options_from_proto,
)
from specpair.rpc.status import abort, rich_status
from specpair.v1 import sampling_pb2
from specpair.v1 import sequence_service_pb2 as pb
from specpair.v1.sequence_service_pb2_grpc import SequenceServiceServicer

TOKENIZER_CHUNK_BYTES = 1024 * 1024


class SequenceHost(Protocol):
    """The sequences of a model process. The host checks calls against the model's limits."""

    async def open(self, sequence_id: str, token_ids: list[int], prompt_length: int, options: SequenceOptions) -> None:
        """Registers a sequence; repeating the same id with the same values is not an error.

        Raises ConflictingBodyError, CapacityExhaustedError, PromptTooLongError, InvalidFieldError.
        """
        ...

    async def rollback(self, sequence_id: str, length: int) -> int:
        """Keeps `length` tokens and returns the length. Raises SequenceNotFoundError, LengthNotReachedError."""
        ...

    async def fork(
        self, sequence_id: str, forked_sequence_id: str, length: int | None, sampling: SamplingOptions | None
    ) -> int:
        """Copies `length` tokens (None: all) and the options (None: the original's); returns the copy's length.

        Raises SequenceNotFoundError, LengthNotReachedError, ConflictingBodyError, CapacityExhaustedError.
        """
        ...

    async def close(self, sequence_id: str) -> None:
        """Forgets a sequence; an unknown id is not an error."""
        ...

    def info(self) -> ModelInfo: ...

    def tokenizer(self) -> TokenizerFiles | None: ...


class SequenceServicer(SequenceServiceServicer):
    """Decodes requests, calls the host, encodes responses."""

    def __init__(self, host: SequenceHost):
        self._host = host
        self._instance_id = host.info().instance_id

    async def GetModelInfo(
        self, request: pb.GetModelInfoRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetModelInfoResponse:
        return model_info_to_proto(self._host.info())

    async def GetTokenizer(
        self, request: pb.GetTokenizerRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GetTokenizerResponse]:
        files = self._host.tokenizer()
        if files is None:
            await _abort_without_tokenizer(context)
        chunks = _chunks(files.tokenizer_json)
        yield pb.GetTokenizerResponse(
            tokenizer_json_chunk=chunks[0],
            chat_template=files.chat_template,
            bos_token=files.bos_token,
            eos_token=files.eos_token,
        )
        for chunk in chunks[1:]:
            yield pb.GetTokenizerResponse(tokenizer_json_chunk=chunk)

    async def OpenSequence(
        self, request: pb.OpenSequenceRequest, context: grpc.aio.ServicerContext
    ) -> pb.OpenSequenceResponse:
        _check_length(request, self._host.info())
        _check_seed(request.sampling)
        await self._host.open(
            check_sequence_id("sequence_id", request.sequence_id),
            list(request.token_ids),
            _prompt_length(request),
            sequence_options_from_proto(request),
        )
        return pb.OpenSequenceResponse(instance_id=self._instance_id)

    async def RollbackSequence(
        self, request: pb.RollbackSequenceRequest, context: grpc.aio.ServicerContext
    ) -> pb.RollbackSequenceResponse:
        sequence_id = check_sequence_id("sequence_id", request.sequence_id)
        length = await self._host.rollback(sequence_id, request.length)
        return pb.RollbackSequenceResponse(instance_id=self._instance_id, length=length)

    async def ForkSequence(
        self, request: pb.ForkSequenceRequest, context: grpc.aio.ServicerContext
    ) -> pb.ForkSequenceResponse:
        length = await self._host.fork(
            check_sequence_id("sequence_id", request.sequence_id),
            check_sequence_id("forked_sequence_id", request.forked_sequence_id),
            request.length if request.HasField("length") else None,
            _forked_sampling(request),
        )
        return pb.ForkSequenceResponse(instance_id=self._instance_id, length=length)

    async def CloseSequence(
        self, request: pb.CloseSequenceRequest, context: grpc.aio.ServicerContext
    ) -> pb.CloseSequenceResponse:
        await self._host.close(check_sequence_id("sequence_id", request.sequence_id))
        return pb.CloseSequenceResponse(instance_id=self._instance_id)


def _check_length(request: pb.OpenSequenceRequest, info: ModelInfo) -> None:
    """Checked before the tokens are copied, because copying millions of them is slow."""
    if len(request.token_ids) >= info.max_model_len:
        raise PromptTooLongError(len(request.token_ids), info.max_model_len - 1)
    most = info.max_model_len if info.encoder_decoder is None else info.encoder_decoder.max_encoder_len
    check_count("encoder_token_ids", len(request.encoder_token_ids), most)


def _prompt_length(request: pb.OpenSequenceRequest) -> int:
    token_count = len(request.token_ids)
    if token_count == 0:
        raise InvalidFieldError("token_ids", "is empty; a sequence has at least one token")
    if not request.HasField("prompt_length"):
        return token_count
    check_range("prompt_length", request.prompt_length, 1, token_count)
    return request.prompt_length


def _forked_sampling(request: pb.ForkSequenceRequest) -> SamplingOptions | None:
    if not request.HasField("sampling"):
        return None
    _check_seed(request.sampling)
    return sampling_from_proto(request.sampling)


def _check_seed(message: sampling_pb2.SamplingOptions) -> None:
    if not message.HasField("seed"):
        raise InvalidFieldError("sampling.seed", "must be set: it keys the random draws of a sequence")


def _chunks(data: bytes) -> list[bytes]:
    """The data in pieces, at least one."""
    return [data[start : start + TOKENIZER_CHUNK_BYTES] for start in range(0, len(data) or 1, TOKENIZER_CHUNK_BYTES)]


async def _abort_without_tokenizer(context: grpc.aio.ServicerContext) -> NoReturn:
    """Aborts with NOT_FOUND, as the contract says for this call alone; the reason stays NOT_SUPPORTED."""
    status = rich_status(NotSupportedError("the model has no tokenizer"))
    status.code = grpc.StatusCode.NOT_FOUND.value[0]
    await abort(context, status)
