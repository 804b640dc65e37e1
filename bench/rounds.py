"""The parts of a round: forward passes, and everything else.

A round is the time from message to message at the client. Its forward passes (one of the target over K + 1 rows, K of
the draft over one row each, all sequences together) are timed in this process with the same runner, in turns with the
requests. The rest is RPC, encoding, scheduling, sampling, verification, waiting and Python.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from bench.arena import Arena
from bench.bursts import burst
from bench.case import Case, Peer
from bench.figures import Acceptance, RoundMeans
from bench.measurement import Counts, Output, Turn
from bench.options import BenchOptions
from bench.passes import TimedRunner
from bench.ratios import Estimate, difference
from specpair.caches.holding import Holding


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A kind of round."""

    context: int
    """Tokens of the prompt."""
    num_speculative_tokens: int
    batch_size: int = 1
    temperature: float = 1.0

    @property
    def case(self) -> Case:
        return Case(
            peer=Peer.SPECPAIR,
            temperature=self.temperature,
            batch_size=self.batch_size,
            num_speculative_tokens=self.num_speculative_tokens,
        )


@dataclass(frozen=True, kw_only=True)
class Runners:
    """The pair in this process, only for its forward passes."""

    target: TimedRunner
    draft: TimedRunner

    @classmethod
    def of(cls, options: BenchOptions) -> "Runners":
        return cls(target=TimedRunner.load(options.target, options), draft=TimedRunner.load(options.draft, options))


@dataclass(frozen=True, kw_only=True)
class RoundFigures:
    """The times of a setting's rounds, in milliseconds."""

    context: int
    num_speculative_tokens: int
    batch_size: int
    round_ms: float
    """From message to message: the median over the requests of their medians."""
    forward_ms: float
    """Only the forward passes of a round, in this process."""
    outside_ms: Estimate
    """Round minus forward passes, for each repetition."""
    tokens_per_round: float
    draft_ms: float
    """Mean time in the draft: forward passes and sampling."""
    verify_ms: float
    """Mean time in the target: forward pass and verification."""
    network_ms: float
    """Mean time of the calls to both, and in their queues."""
    other_ms: float
    """Mean of the rest."""


async def take_apart(
    arena: Arena, runners: Runners, settings: Sequence[Setting], token_ids: list[int], repetitions: int
) -> list[RoundFigures]:
    """Every setting, in turns; prompts come from `token_ids`, each beginning one token later than the last."""
    outputs: dict[Setting, dict[tuple[int, int], Output]] = {setting: {} for setting in settings}
    forwards: dict[Setting, dict[tuple[int, int], float]] = {setting: {} for setting in settings}
    with arena.progress.over((repetitions + 1) * len(settings), "kinds of rounds") as advance:
        for repetition in range(-1, repetitions):  # the first warms up
            for setting in settings:
                advance(f"K={setting.num_speculative_tokens} context {setting.context} batch {setting.batch_size}")
                output = await generate(arena, setting, token_ids, max(repetition, 0))
                seconds = forward_seconds(arena.options, runners, setting, token_ids)
                if repetition >= 0:
                    outputs[setting][0, repetition] = output
                    forwards[setting][0, repetition] = seconds
    return [figures_of(setting, outputs[setting], forwards[setting]) for setting in settings]


async def generate(arena: Arena, setting: Setting, token_ids: list[int], repetition: int) -> Output:
    prompts = [token_ids[place : place + setting.context] for place in range(setting.batch_size)]
    return await arena.generate(Turn(case=setting.case, prompt=0, repetition=repetition), prompts)


def forward_seconds(options: BenchOptions, runners: Runners, setting: Setting, token_ids: list[int]) -> float:
    """Seconds of the forward passes of one round, in the middle of the output."""
    held = token_ids[: setting.context + options.max_tokens // 2]
    k = setting.num_speculative_tokens
    with both(runners, held, setting.batch_size) as (target, draft):

        def passes() -> float:
            verification = runners.target.pass_seconds(target, held[: k + 1])
            return verification + sum(runners.draft.pass_seconds(draft, held[:1]) for _ in range(k))

        return burst(passes)


@contextmanager
def both(runners: Runners, token_ids: list[int], count: int) -> Iterator[tuple[list[Holding], list[Holding]]]:
    """`count` sequences at the target and at the draft that hold the tokens."""
    with runners.target.sequences(token_ids, count) as target, runners.draft.sequences(token_ids, count) as draft:
        yield target, draft


def figures_of(
    setting: Setting, outputs: dict[tuple[int, int], Output], forwards: dict[tuple[int, int], float]
) -> RoundFigures:
    rounds_ms = {key: 1000 * median(output.round_seconds) for key, output in outputs.items()}
    forwards_ms = {key: 1000 * seconds for key, seconds in forwards.items()}
    counts = Counts.total(output.counts for output in outputs.values())
    means = RoundMeans.of(counts, sum(output.output_seconds for output in outputs.values()))
    tokens = sum(output.tokens for output in outputs.values())
    return RoundFigures(
        context=setting.context,
        num_speculative_tokens=setting.num_speculative_tokens,
        batch_size=setting.batch_size,
        round_ms=median(rounds_ms.values()),
        forward_ms=median(forwards_ms.values()),
        outside_ms=difference(rounds_ms, forwards_ms),
        tokens_per_round=Acceptance.of(counts, tokens).tokens_per_round,
        draft_ms=means.draft_ms,
        verify_ms=means.verify_ms,
        network_ms=means.network_ms,
        other_ms=means.other_ms,
    )
