"""SequenceService over a store that only remembers what it was asked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from specpair.errors import InvalidFieldError, LengthNotReachedError, NotSupportedError, SequenceNotFoundError
from specpair.model_info import ModelInfo, TokenizerFiles
from specpair.options import Encoding, Rule, SamplingOptions, SequenceOptions
from specpair.rpc.messages import model_info_from_proto
from specpair.rpc.status import peer_errors
from specpair.server.config import ServerConfig
from specpair.server.sequence_servicer import TOKENIZER_CHUNK_BYTES, SequenceServicer
from specpair.server.server import ServiceServer
from specpair.v1 import sampling_pb2
from specpair.v1 import sequence_service_pb2 as pb
from specpair.v1.sequence_service_pb2_grpc import SequenceServiceStub, add_SequenceServiceServicer_to_server
from tests.service.rpc_servers import channel_to

INFO = ModelInfo(
    instance_id="instance-1",
    model_name="fake",
    architecture="FakeForCausalLM",
    parameter_count=5,
    vocab_size=100,
    max_model_len=512,
    max_num_speculative_tokens=8,
    max_num_seqs=4,
    dtype="float32",
    device="cpu",
    cache="paged",
    block_size=16,
    block_count=100,
    free_block_count=99,
    sequence_count=0,
    eos_token_ids=(2,),
    deterministic=False,
)
SEEDED = sampling_pb2.SamplingOptions(seed=7)


class FakeStore:
    def __init__(self, files: TokenizerFiles | None = None) -> None:
        self.files = files
        self.calls: list[tuple[Any, ...]] = []

    async def open(self, sequence_id: str, token_ids: list[int], prompt_length: int, options: SequenceOptions) -> None:
        self.calls.append(("open", sequence_id, token_ids, prompt_length, options))

    async def rollback(self, sequence_id: str, length: int) -> int:
        self.calls.append(("rollback", sequence_id, length))
        if sequence_id == "lost":
            raise SequenceNotFoundError(sequence_id)
        if not 1 <= length <= 20:
            raise LengthNotReachedError(length, 20)
        return length

    async def fork(
        self, sequence_id: str, forked_sequence_id: str, length: int | None, sampling: SamplingOptions | None
    ) -> int:
        self.calls.append(("fork", sequence_id, forked_sequence_id, length, sampling))
        return 20 if length is None else length

    async def close(self, sequence_id: str) -> None:
        self.calls.append(("close", sequence_id))

    def info(self) -> ModelInfo:
        return INFO

    def tokenizer(self) -> TokenizerFiles | None:
        return self.files


@asynccontextmanager
async def stub_of(store: FakeStore) -> AsyncIterator[Any]:
    """A stub whose gRPC errors are raised as what they stand for."""
    server = ServiceServer(ServerConfig(port=0, grace_seconds=0))
    add_SequenceServiceServicer_to_server(SequenceServicer(store), server)
    port = await server.start()
    await server.set_ready(True)
    try:
        async with channel_to(port) as channel:
            with peer_errors():
                yield SequenceServiceStub(channel)
    finally:
        await server.stop()


async def test_model_info() -> None:
    async with stub_of(FakeStore()) as stub:
        assert model_info_from_proto(await stub.GetModelInfo(pb.GetModelInfoRequest())) == INFO


@pytest.mark.parametrize("size", [0, 10, TOKENIZER_CHUNK_BYTES, 2 * TOKENIZER_CHUNK_BYTES + 1])
async def test_tokenizer_comes_in_pieces(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    files = TokenizerFiles(tokenizer_json=data, chat_template="{{ x }}", bos_token="<s>", eos_token="</s>")
    async with stub_of(FakeStore(files)) as stub:
        pieces = [piece async for piece in stub.GetTokenizer(pb.GetTokenizerRequest())]
    assert b"".join(piece.tokenizer_json_chunk for piece in pieces) == data
    assert all(len(piece.tokenizer_json_chunk) <= TOKENIZER_CHUNK_BYTES for piece in pieces)
    assert (pieces[0].chat_template, pieces[0].bos_token, pieces[0].eos_token) == ("{{ x }}", "<s>", "</s>")
    assert not any(piece.chat_template for piece in pieces[1:])


async def test_model_without_a_tokenizer_is_not_found() -> None:
    with pytest.raises(NotSupportedError, match="no tokenizer") as caught:
        async with stub_of(FakeStore()) as stub:
            await stub.GetTokenizer(pb.GetTokenizerRequest()).read()
    assert isinstance(caught.value.__cause__, grpc.aio.AioRpcError)
    assert caught.value.__cause__.code() is grpc.StatusCode.NOT_FOUND


async def test_open_passes_every_field() -> None:
    store = FakeStore()
    request = pb.OpenSequenceRequest(
        sequence_id="s",
        token_ids=[1, 2, 3],
        prompt_length=2,
        sampling=sampling_pb2.SamplingOptions(temperature=0.5, seed=7),
        rule=sampling_pb2.ACCEPTANCE_RULE_TOKEN,
        encoding=sampling_pb2.DISTRIBUTION_ENCODING_DENSE,
        vocab_size=90,
        lenience=0.5,
        logprobs=0,
    )
    async with stub_of(store) as stub:
        assert (await stub.OpenSequence(request)).instance_id == "instance-1"
    options = SequenceOptions(
        sampling=SamplingOptions(temperature=0.5, seed=7),
        rule=Rule.TOKEN,
        encoding=Encoding.DENSE,
        vocab_size=90,
        lenience=0.5,
        logprobs=0,
    )
    assert store.calls == [("open", "s", [1, 2, 3], 2, options)]


async def test_open_fills_in_what_is_absent() -> None:
    store = FakeStore()
    async with stub_of(store) as stub:
        await stub.OpenSequence(pb.OpenSequenceRequest(sequence_id="s", token_ids=[1, 2, 3], sampling=SEEDED))
    assert store.calls == [("open", "s", [1, 2, 3], 3, SequenceOptions(sampling=SamplingOptions(seed=SEEDED.seed)))]


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("sequence_id", {"sequence_id": ""}),
        ("sequence_id", {"sequence_id": "x" * 129}),
        ("sequence_id", {"sequence_id": "a\nb"}),
        ("token_ids", {"token_ids": []}),
        ("prompt_length", {"prompt_length": 0}),
        ("prompt_length", {"prompt_length": 4}),
        ("sampling.seed", {"sampling": sampling_pb2.SamplingOptions(temperature=1)}),
        ("sampling.temperature", {"sampling": sampling_pb2.SamplingOptions(temperature=-1, seed=1)}),
        ("rule", {"rule": 9}),
        ("encoding", {"encoding": 9}),
        ("vocab_size", {"vocab_size": 0}),
        ("lenience", {"lenience": 0.0, "rule": sampling_pb2.ACCEPTANCE_RULE_TOKEN}),
        ("lenience", {"lenience": 0.5}),
        ("logprobs", {"logprobs": 21}),
    ],
)
async def test_open_refuses_before_the_store_is_asked(field: str, changes: dict[str, Any]) -> None:
    store = FakeStore()
    values = {"sequence_id": "s", "token_ids": [1, 2, 3], "sampling": SEEDED} | changes
    with pytest.raises(InvalidFieldError) as caught:
        async with stub_of(store) as stub:
            await stub.OpenSequence(pb.OpenSequenceRequest(**values))
    assert caught.value.metadata["field"] == field
    assert store.calls == []


async def test_longest_id_is_taken() -> None:
    store = FakeStore()
    async with stub_of(store) as stub:
        await stub.CloseSequence(pb.CloseSequenceRequest(sequence_id="é" * 128))
    assert store.calls == [("close", "é" * 128)]


async def test_rollback_tells_the_length() -> None:
    async with stub_of(FakeStore()) as stub:
        answer = await stub.RollbackSequence(pb.RollbackSequenceRequest(sequence_id="s", length=5))
    assert (answer.instance_id, answer.length) == ("instance-1", 5)


@pytest.mark.parametrize(
    ("sequence_id", "length", "error"),
    [("s", 21, LengthNotReachedError), ("lost", 5, SequenceNotFoundError), ("", 5, InvalidFieldError)],
)
async def test_rollback_that_cannot_be(sequence_id: str, length: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        async with stub_of(FakeStore()) as stub:
            await stub.RollbackSequence(pb.RollbackSequenceRequest(sequence_id=sequence_id, length=length))


async def test_fork_tells_absent_fields_from_given_ones() -> None:
    store = FakeStore()
    async with stub_of(store) as stub:
        whole = await stub.ForkSequence(pb.ForkSequenceRequest(sequence_id="a", forked_sequence_id="b"))
        part = await stub.ForkSequence(
            pb.ForkSequenceRequest(sequence_id="a", forked_sequence_id="c", length=0, sampling=SEEDED)
        )
    assert (whole.length, part.length) == (20, 0)
    assert store.calls == [("fork", "a", "b", None, None), ("fork", "a", "c", 0, SamplingOptions(seed=7))]


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("sequence_id", {"sequence_id": ""}),
        ("forked_sequence_id", {"forked_sequence_id": "\t"}),
        ("sampling.seed", {"sampling": sampling_pb2.SamplingOptions()}),
    ],
)
async def test_fork_refuses_before_the_store_is_asked(field: str, changes: dict[str, Any]) -> None:
    store = FakeStore()
    with pytest.raises(InvalidFieldError) as caught:
        async with stub_of(store) as stub:
            await stub.ForkSequence(
                pb.ForkSequenceRequest(**{"sequence_id": "a", "forked_sequence_id": "b", **changes})
            )
    assert caught.value.metadata["field"] == field
    assert store.calls == []
