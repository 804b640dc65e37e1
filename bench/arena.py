"""What compared cases run on: the services of a pair, and peers over the same weights."""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from bench.case import Peer
from bench.interleaving import group, measure
from bench.llama_peer import LlamaPeer, llama_peer
from bench.local import with_local_pair
from bench.measurement import Measurement, Output, Turn
from bench.options import BenchOptions
from bench.progress import Progress
from bench.prompts import chat_prompts, token_prompts
from bench.served import while_alive
from bench.specpair_peer import generate
from bench.transformers_peer import TransformersPeer, transformers_peer
from bench.vllm_peer import VllmPeer, vllm_peer
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Arena:
    """Ready to run turns."""

    options: BenchOptions
    progress: Progress
    prompts: list[list[int]]
    stub: CoordinatorServiceStub
    transformers: TransformersPeer | None
    """None if nothing is compared with it."""
    llama: LlamaPeer | None
    """None if nothing is compared with it."""
    vllm: VllmPeer | None
    """None if nothing is compared with it."""

    async def run(self, turn: Turn) -> Output:
        """One turn; while one side works, the other waits and takes no processor time."""
        return await self.generate(turn, group(self.prompts, turn))

    async def generate(self, turn: Turn, prompts: list[list[int]]) -> Output:
        """A turn with the given prompts."""
        case, max_tokens = turn.case, self.options.max_tokens
        if case.peer is Peer.SPECPAIR:
            return await generate(self.stub, case, prompts, max_tokens, turn.seed)
        if case.peer is Peer.LLAMA:
            assert self.llama is not None, "the servers were not asked for"
            return await self.llama.generate(case, prompts, max_tokens, turn.seed)
        if case.peer is Peer.VLLM:
            assert self.vllm is not None, "the servers were not asked for"
            return await self.vllm.generate(case, prompts, max_tokens, turn.seed)
        assert self.transformers is not None, "the process was not asked for"
        return await self.transformers.generate(case, prompts, max_tokens, turn.seed)

    async def measure(self, order: Sequence[Turn]) -> list[Measurement]:
        return await measure(order, self.run, self.progress)

    async def pair_info(self) -> pb.GetPairInfoResponse:
        return await self.stub.GetPairInfo(pb.GetPairInfoRequest())


async def in_arena(
    options: BenchOptions,
    progress: Progress,
    work: Callable[[Arena], Coroutine[Any, Any, Result]],
    *,
    with_peers: bool = False,
    prompts: list[list[int]] | None = None,
) -> Result:
    """Starts the services, and with `with_peers` the peers that the options name; runs the work; stops them all.

    Without `prompts` it takes the held-out ones. Raises CommandError if a service or a server ends.
    """
    texts = prompts_of(options) if prompts is None else prompts
    async with AsyncExitStack() as stack:
        transformers = llama = vllm = None
        if with_peers and options.has_transformers:
            transformers = await stack.enter_async_context(transformers_peer(options))
        if with_peers and options.llama is not None:
            llama = await stack.enter_async_context(llama_peer(options, progress, max(map(len, texts))))
        if with_peers and options.vllm is not None:
            vllm = await stack.enter_async_context(vllm_peer(options, progress, max(map(len, texts))))
        servers = [server for peer in (llama, vllm) if peer is not None for server in peer.servers]

        async def work_there(stub: CoordinatorServiceStub) -> Result:
            arena = Arena(
                options=options,
                progress=progress,
                prompts=texts,
                stub=stub,
                transformers=transformers,
                llama=llama,
                vllm=vllm,
            )
            return await while_alive(servers, work(arena))

        return await with_local_pair(options, work_there)


def prompts_of(options: BenchOptions) -> list[list[int]]:
    """The held-out prompts as tokens."""
    if options.is_chat:
        return chat_prompts(options.target)
    return token_prompts(options.target, options.prompt_tokens)
