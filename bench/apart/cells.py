"""The cells of `bench.apart`: what is varied, and in which order."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bench.apart.arithmetic import Devices, nearest
from bench.case import Case, Peer
from bench.measurement import Turn
from bench.options import SEED
from specpair.options import Rule, WorkAhead

KS = (1, 2, 3, 4, 6, 8, 10, 12, 16)
"""The list in which the best K is searched."""
TRIED = {WorkAhead.OFF: 3, WorkAhead.ON: 3, WorkAhead.AUTO: 1}
"""How many of them are measured for each way: those nearest to the best synchronous one by calculation."""
TRIED_SHORTER = 3
"""How many more are measured for working ahead, from about half of that one on: a draft that works beside the target
has to be ready when its pass ends."""
QUICK_TRIED = {WorkAhead.OFF: 2, WorkAhead.ON: 2, WorkAhead.AUTO: 1}
PROBE_KS = (4, 16)
"""Proposals that show the acceptance at each position, and how a round grows with K."""


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Everything that is varied. Times are in milliseconds."""

    acceptances: tuple[float, ...] = (0.85, 0.6)
    """What the drafts are made for, under the token rule."""
    verify_ms: float = 20.0
    step_ms: tuple[float, ...] = (1.0, 2.0)
    round_trip_ms: tuple[float, ...] = (0.0, 2.0, 5.0, 10.0)
    temperatures: tuple[float, ...] = (0.0, 1.0)
    rules: tuple[Rule, ...] = (Rule.COUPLED, Rule.BLOCK)
    batch_sizes: tuple[int, ...] = (1, 8)
    gigabits: float = 0.0
    """What each link carries in a second, each way; 0 for any amount."""
    scale: float = 1.0
    """How many times as long the imitated devices and the link take for everything. The times above are of those that
    are meant; the cells have what is waited."""

    def pairs(self) -> list["Pair"]:
        """The pairs of processes, each started once."""
        return [
            Pair(
                acceptance=acceptance,
                temperature=temperature,
                step_ms=self.scale * step,
                verify_ms=self.scale * self.verify_ms,
            )
            for acceptance in self.acceptances
            for temperature in self.temperatures
            for step in self.step_ms
        ]

    def rules_at(self, temperature: float) -> tuple[Rule, ...]:
        """At T = 0 all rules are the same: the token must be the target's likeliest."""
        return self.rules if temperature else self.rules[:1]

    def cells_of(self, pair: "Pair", rule: Rule) -> list["Cell"]:
        return [
            Cell(pair=pair, rule=rule, round_trip_ms=self.scale * round_trip, batch_size=batch_size)
            for round_trip in self.round_trip_ms
            for batch_size in self.batch_sizes
        ]

    def cell_count(self) -> int:
        return sum(len(self.cells_of(pair, rule)) for pair in self.pairs() for rule in self.rules_at(pair.temperature))


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A draft and a target, and their speed."""

    acceptance: float
    temperature: float
    verify_ms: float
    step_ms: float

    def devices(self, round_trip_ms: float) -> Devices:
        return Devices(verify_ms=self.verify_ms, step_ms=self.step_ms, round_trip_ms=round_trip_ms)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is compared in turns: all ways to generate the same outputs with the same devices."""

    pair: Pair
    rule: Rule
    round_trip_ms: float
    batch_size: int

    @property
    def devices(self) -> Devices:
        return self.pair.devices(self.round_trip_ms)

    @property
    def name(self) -> str:
        pair = self.pair
        return (
            f"acceptance {pair.acceptance:g} T={pair.temperature:g} {self.rule.value} batch {self.batch_size}, step"
            f" {pair.step_ms:g} ms, round trip {self.round_trip_ms:g} ms"
        )

    def case(self, way: WorkAhead, num_speculative_tokens: int) -> Case:
        """One way to generate the cell's outputs; OFF has draft and target work in turns."""
        return Case(
            peer=Peer.SPECPAIR,
            temperature=self.pair.temperature,
            batch_size=self.batch_size,
            num_speculative_tokens=num_speculative_tokens,
            rule=self.rule,
            work_ahead=way,
        )

    def probes(self) -> list[Case]:
        """The longest last."""
        return [self.case(WorkAhead.OFF, k) for k in PROBE_KS]


def ks_to_try(best: int, tried: Mapping[WorkAhead, int], shorter: int) -> dict[WorkAhead, list[int]]:
    """The K that are measured for each way, around the best synchronous one by calculation."""
    ks = {way: nearest(KS, best, count) for way, count in tried.items()}
    ks[WorkAhead.ON] = sorted({*ks[WorkAhead.ON], *nearest(KS, best // 2 + 1, shorter)})
    return ks


def order_of(cases: Sequence[Case], groups: int, repetitions: int) -> Iterator[Turn]:
    """Each case on each group of prompts, in every repetition, in an order shuffled each time."""
    shuffler = random.Random(SEED)
    members = list(cases)
    for repetition in range(repetitions):
        for prompt in range(groups):
            shuffler.shuffle(members)
            yield from (Turn(case=case, prompt=prompt, repetition=repetition) for case in members)


def quick(matrix: Matrix) -> Matrix:
    """A part that shows whether everything runs."""
    return replace(matrix, step_ms=matrix.step_ms[:1], round_trip_ms=(5.0,))
