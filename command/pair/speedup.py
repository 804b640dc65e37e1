"""What speculation gains on this machine: the same request with and without it, in turns, as one line."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median

from rich.console import Console

from command.connection import coordinator_at
from command.failures import CommandError
from command.generation.results import Completion
from specpair.client.resuming import generate_tokens
from specpair.rpc.generation_metrics import tokens_per_second, total
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub

TURNS = 4
FIXED_K = 4
"""Proposed per round to see what is missing, where adaptive K proposed nothing."""
FEWEST_TOKENS = 3
"""Of an answer with room for a proposal: the first token comes with the prompt, the last with a verdict."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One answer."""

    summary: pb.GenerationSummary
    token_ids: list[int]


@dataclass(frozen=True, kw_only=True)
class Speedup:
    """The runs of one request, in turns."""

    plain: Sequence[Run]
    """Without speculation."""
    speculative: Sequence[Run]
    fixed: Run | None = None
    """With a fixed number of proposed tokens, if adaptive K proposed none."""
    is_greedy: bool = True

    @property
    def ratio(self) -> float:
        """The median, over the turns, of the speed with speculation over the speed without it."""
        return median(fast / slow for fast, slow in zip(speeds(self.speculative), speeds(self.plain), strict=True))

    def line(self) -> str:
        """The whole result, for people. It begins with the ratio, if one was measured."""
        shortest = min(len(run.token_ids) for run in (*self.plain, *self.speculative, *filter(None, [self.fixed])))
        if shortest < FEWEST_TOKENS:
            tokens = "1 token" if shortest == 1 else f"{shortest} tokens"
            return f"no speedup measured: an answer of {tokens} is too short; it takes {FEWEST_TOKENS} at least"
        without, with_it = median(speeds(self.plain)), median(speeds(self.speculative))
        parts = [
            f"speedup {self.ratio:.2f}x",
            f"{without:.1f} tokens/s without speculation, {with_it:.1f} with it",
            *acceptance(total([run.summary for run in self.speculative]).speculation),
        ]
        if self.is_greedy:
            parts.append(same_output(self.plain[0].token_ids, self.speculative[0].token_ids))
        if self.ratio < 1.0:
            parts.append(self._what_is_missing())
        return " · ".join(parts)

    def _what_is_missing(self) -> str:
        """Why it does not pay: a round costs too much, or brings too little."""
        run = self.fixed or self.speculative[0]
        speculation = run.summary.speculation
        cost = (decoding_us(run) / speculation.round_count) / (
            median(decoding_us(one) / one.summary.speculation.round_count for one in self.plain)
        )
        drafting = speculation.draft_time_us / decoding_us(run)
        return (
            f"does not pay here: a round takes {cost:.2f} times as long as one token without speculation, "
            f"{drafting:.0%} of it in the draft, and gives {speculation.tokens_per_round:.2f} tokens; it pays with a "
            f"draft that is accepted more often (from {cost:.2f} tokens per round) or faster"
        )


def speeds(runs: Sequence[Run]) -> list[float]:
    """Tokens per second of each."""
    return [tokens_per_second(run.summary) for run in runs]


def decoding_us(run: Run) -> int:
    """Microseconds after the first token."""
    return max(run.summary.total_time_us - run.summary.time_to_first_token_us, 1)


def acceptance(speculation: pb.SpeculationSummary) -> list[str]:
    """Acceptance rate and tokens per round; that nothing was proposed, if so."""
    if not speculation.draft_token_count:
        why = ": adaptive K found that they would not pay" if speculation.adaptive else ""
        return [f"no tokens proposed{why}"]
    return [
        f"acceptance rate {speculation.acceptance_rate:.0%}",
        f"{speculation.tokens_per_round:.2f} tokens per round",
    ]


def same_output(plain: Sequence[int], speculative: Sequence[int]) -> str:
    """Whether both outputs are the same. Rounding may decide near-ties in another way: where, if so."""
    if list(plain) == list(speculative):
        return f"same output both ways ({len(plain)} tokens)"
    differs = next((i for i, pair in enumerate(zip(plain, speculative, strict=False)) if pair[0] != pair[1]), None)
    return f"outputs differ from token {min(len(plain), len(speculative)) if differs is None else differs} on"


async def measure_speedup(address: str, request: pb.GenerateTokensRequest, console: Console) -> Speedup:
    """Runs the request with and without speculation, in turns. Raises SpecpairError or CommandError."""
    plain: list[Run] = []
    speculative: list[Run] = []
    async with coordinator_at(address) as stub, progress(console) as show:
        for turn in range(TURNS):
            show(f"measuring the speedup, turn {turn + 1} of {TURNS}: without speculation")
            plain.append(await run(stub, request, 0))
            if len(plain[-1].token_ids) < FEWEST_TOKENS:
                return Speedup(plain=plain, speculative=speculative)
            show(f"measuring the speedup, turn {turn + 1} of {TURNS}: with speculation")
            speculative.append(await run(stub, request))
        has_proposals = any(one.summary.speculation.draft_token_count for one in speculative)
        fixed = None if has_proposals else await run(stub, request, FIXED_K)
    is_greedy = plain[0].summary.sampling.temperature == 0  # the model's, where the request says none
    return Speedup(plain=plain, speculative=speculative, fixed=fixed, is_greedy=is_greedy)


async def run(stub: CoordinatorServiceStub, request: pb.GenerateTokensRequest, k: int | None = None) -> Run:
    """One answer; `k` proposed tokens per round, by default those that the request says."""
    asked = pb.GenerateTokensRequest()
    asked.CopyFrom(request)
    asked.include_rejected = False
    if k is not None:
        asked.num_speculative_tokens = k
    completion = Completion(1)
    async for response in generate_tokens(stub, asked):
        completion.add(response)
    (choice,) = completion.choices
    if choice.summary is None:
        raise CommandError("the answer ended without its summary")
    return Run(summary=choice.summary, token_ids=[token.id for token in choice.tokens])


@asynccontextmanager
async def progress(console: Console) -> AsyncIterator:
    """Shows what is being done: a spinner on a terminal, nothing elsewhere."""
    with console.status("") as status:
        yield status.update
