"""What compared cases run on: the services of a pair and a transformers process over the same weights."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TypeVar

from bench.case import Peer
from bench.interleaving import group, measure
from bench.local import with_local_pair
from bench.measurement import Measurement, Output, Turn
from bench.options import BenchOptions
from bench.progress import Progress
from bench.prompts import token_prompts
from bench.specpair_peer import generate
from bench.transformers_peer import TransformersPeer, transformers_peer
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

    async def run(self, turn: Turn) -> Output:
        """One turn; while one side works, the other waits and takes no processor time."""
        return await self.generate(turn, group(self.prompts, turn))

    async def generate(self, turn: Turn, prompts: list[list[int]]) -> Output:
        """A turn with the given prompts."""
        if turn.case.peer is Peer.SPECPAIR:
            return await generate(self.stub, turn.case, prompts, self.options.max_tokens, turn.seed)
        assert self.transformers is not None, "the process was not asked for"
        return await self.transformers.generate(turn.case, prompts, self.options.max_tokens, turn.seed)

    async def measure(self, order: Sequence[Turn]) -> list[Measurement]:
        return await measure(order, self.run, self.progress)

    async def pair_info(self) -> pb.GetPairInfoResponse:
        return await self.stub.GetPairInfo(pb.GetPairInfoRequest())


async def in_arena(
    options: BenchOptions,
    progress: Progress,
    work: Callable[[Arena], Awaitable[Result]],
    *,
    with_transformers: bool = False,
    prompts: list[list[int]] | None = None,
) -> Result:
    """Starts the services, runs the work, stops the services. Without `prompts` it takes the held-out ones.

    Raises CommandError if a service ends.
    """
    texts = token_prompts(options.target, options.prompt_tokens) if prompts is None else prompts
    async with AsyncExitStack() as stack:
        peer = await stack.enter_async_context(transformers_peer(options)) if with_transformers else None

        async def work_there(stub: CoordinatorServiceStub) -> Result:
            return await work(Arena(options=options, progress=progress, prompts=texts, stub=stub, transformers=peer))

        return await with_local_pair(options, work_there)
