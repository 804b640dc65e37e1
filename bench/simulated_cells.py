"""Simulated pairs of many kinds, for the ablation of adaptive K."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from bench.simulated_machine import MEASURED, Machine, Rates, Text
from bench.simulated_pair import Output, Policy, Simulation

PASS_TIME = 10_000.0
"""Microseconds of a pass of the target with one row."""

MakePolicy = Callable[[], Policy]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A pair and its outputs."""

    acceptance: float
    load: int
    length: int
    spread: float
    """How much outputs differ in acceptance: the intraclass correlation."""
    rises: bool
    """Whether later positions are accepted more often."""
    changes: bool
    """Whether acceptance changes within an output."""
    has_confidence: bool
    comes_and_goes: bool
    """Whether the number of outputs changes between 1 and the load."""
    steady: float | None
    """Passes for which the machine keeps its speed; None if it never changes."""
    machine: Machine

    def text(self, seed: int, index: int) -> Text:
        draw = random.Random(f"{seed} {index}")
        first = last = self._rates(self._draw_rate(draw))
        if self.changes:
            last = self._rates(max(self._draw_rate(draw) - 0.5, 0.0))
            first, last = draw.sample((first, last), 2)
        length = max(int(self.length * draw.uniform(0.5, 1.5)), 2)
        return Text(
            length=length,
            prompt=draw.randint(16, 64),
            rates=lambda token_count: first if token_count < length // 2 else last,
            has_confidence=self.has_confidence,
        )

    def _draw_rate(self, draw: random.Random) -> float:
        if not self.spread:
            return self.acceptance
        weight = 1.0 / self.spread - 1.0
        return draw.betavariate(self.acceptance * weight, (1.0 - self.acceptance) * weight)

    def _rates(self, rate: float) -> Rates:
        return (0.9 * rate, rate + 0.3 * (1 - rate), rate + 0.4 * (1 - rate)) if self.rises else (rate, rate, rate)


def cells() -> Iterator[Cell]:
    """Drawn pairs, and the measured one with outputs of several kinds."""
    yield from drawn_cells()
    for has_confidence, length, steady in product((False, True), (48, 96), (None, 40.0, 400.0)):
        yield Cell(
            acceptance=0.6,
            load=1,
            length=length,
            spread=0.1,
            rises=True,
            changes=False,
            has_confidence=has_confidence,
            comes_and_goes=False,
            steady=steady,
            machine=MEASURED,
        )


def drawn_cells() -> Iterator[Cell]:
    draw, further = random.Random(2), random.Random(3)
    for rate, step, row, load in product((0.2, 0.5, 0.7, 0.9), (0.02, 0.1, 0.3), (0.0, 0.05, 0.15), (1, 4, 16)):
        is_wild = draw.random() < 0.25
        machine = Machine(
            pass_time=PASS_TIME,
            row_time=row * PASS_TIME,
            step_time=step * PASS_TIME,
            start_time=further.choice((0.0, 0.5, 2.0)) * step * PASS_TIME,
            step_row_time=0.03 * step * PASS_TIME,
            feed_row_time=0.03 * step * PASS_TIME,
            call_time=draw.choice((0.03, 0.03, 0.4)) * PASS_TIME,
            contention=draw.choice((0.0, 0.0, 0.6)),
            bend=draw.choice((None, 8)),
            stall_chance=0.002 if is_wild else 0.01,
            stall_factor=50.0 if is_wild else 4.0,
        )
        yield Cell(
            acceptance=rate,
            load=load,
            length=draw.choice((16, 40, 128, 512)),
            spread=draw.choice((0.0, 0.1, 0.25)),
            rises=draw.random() < 0.5,
            changes=draw.random() < 0.25,
            has_confidence=draw.random() < 0.5,
            comes_and_goes=load > 1 and draw.random() < 0.35,
            steady=further.choice((40.0, 400.0)) if draw.random() < 0.3 else None,
            machine=machine,
        )


def rate_of(cell: Cell, make_policy: MakePolicy, seed: int, tokens: int) -> float:
    """Tokens per second, after a warm-up of a quarter as many tokens."""
    simulation = Simulation(cell.machine, seed=seed)
    started = ended = 0
    if cell.steady is not None:
        phase = cell.steady * cell.machine.pass_time
        simulation.pace = lambda now: speed_of(seed, int(now / phase))

    def fill(_: Output | None = None) -> None:
        nonlocal started, ended
        ended += _ is not None
        wanted = random.Random(f"{seed} {simulation.now // (60 * PASS_TIME)}").randint(1, cell.load)
        while started - ended < (wanted if cell.comes_and_goes else cell.load):
            started += 1
            simulation.start(Output(cell.text(seed, started), make_policy()))

    simulation.on_finish = fill
    fill()
    simulation.run(tokens=tokens // 4)
    return tokens / simulation.run(tokens=tokens) * 1e6


@cache
def speed_of(seed: int, phase: int) -> float:
    """The factor of all times in a phase of a machine whose speed changes."""
    return random.Random(f"{seed} {phase}").choice((0.7, 1.0, 1.0, 1.5))
