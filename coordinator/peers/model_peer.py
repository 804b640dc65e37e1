"""The calls that draft and target have in common: plain data in and out, only SpecpairErrors."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from coordinator.peers.failures import known_failures
from specpair.client.channel import connect
from specpair.errors import NotSupportedError, SpecpairError
from specpair.model_info import ModelInfo, TokenizerFiles
from specpair.options import SamplingOptions, SequenceOptions
from specpair.rpc.messages import model_info_from_proto, open_request, sampling_to_proto
from specpair.security.settings import PLAIN, ChannelSecurity
from specpair.v1 import sequence_service_pb2
from specpair.v1.sequence_service_pb2_grpc import SequenceServiceStub

MAX_TOKENIZER_BYTES = 256 * 1024 * 1024


class ModelPeer:
    """The sequences and the model information of a service. Created inside the running loop.

    `within` is a call's timeout in seconds; after it the call raises PeerUnavailableError.
    """

    def __init__(self, address: str, security: ChannelSecurity = PLAIN):
        """Raises InvalidFieldError for certificates and tokens that cannot be used."""
        self.address = address
        self.speaks_tls = security.tls is not None
        self.channel = connect(address, security)
        self._sequences = SequenceServiceStub(self.channel)
        self._health = HealthStub(self.channel)

    async def health(self) -> AsyncGenerator[bool, None]:
        """Whether the process serves: the current state and each change. Ends or raises when the connection is lost."""
        with known_failures():
            watch: Any = self._health.Watch  # pyright: ignore[reportAttributeAccessIssue]: stubs lack it
            async for response in watch(HealthCheckRequest()):
                yield response.status == HealthCheckResponse.SERVING

    async def info(self, within: float) -> ModelInfo:
        with known_failures():
            request = sequence_service_pb2.GetModelInfoRequest()
            return model_info_from_proto(await self._sequences.GetModelInfo(request, timeout=within))

    async def tokenizer_files(self, within: float) -> TokenizerFiles | None:
        """The model's tokenizer; None if it has none."""
        try:
            with known_failures():
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
        with known_failures():
            response = await self._sequences.OpenSequence(request, timeout=within)
        return response.instance_id

    async def fork(
        self, sequence_id: str, forked_sequence_id: str, length: int, sampling: SamplingOptions, within: float
    ) -> str:
        """Registers a copy of the first `length` tokens with its own options; returns the instance that holds it."""
        request = sequence_service_pb2.ForkSequenceRequest(
            sequence_id=sequence_id,
            forked_sequence_id=forked_sequence_id,
            length=length,
            sampling=sampling_to_proto(sampling),
        )
        with known_failures():
            response = await self._sequences.ForkSequence(request, timeout=within)
        return response.instance_id

    async def close_sequence(self, sequence_id: str, within: float) -> None:
        request = sequence_service_pb2.CloseSequenceRequest(sequence_id=sequence_id)
        with known_failures():
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
