"""One run: reads the proper answers, attacks, and checks that nothing has changed."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.hostile.attack import Attack, CaseFailedError, Tally, close
from tests.hostile.child import Child
from tests.hostile.kinds import KINDS, case_of
from tests.hostile.options import Options
from tests.hostile.truth import NotServedError, Truth, ask
from tests.hostile.watch import Watch
from tests.hostile.wire import Wire, open_wire

WARM_UP_MESSAGES = 300
WARM_UP_SEED = 987_654_321
CHECK_PAUSE = 2.0
SETTLING_SECONDS = 30.0
SETTLED = ("tasks", "descriptors")
MORE_DESCRIPTORS = 2


@dataclass
class Outcome:
    """What a run found."""

    tally: Tally
    seconds: float = 0.0
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    truth_checks: int = 0
    health_checks: int = 0
    longest_health_seconds: dict[str, float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    """Unexpected errors in the services' log."""


class HostileRun:
    """Attacks a child."""

    def __init__(self, child: Child, options: Options, say: Callable[[str], None] = lambda text: None):
        self._child = child
        self._options = options
        self._say = say

    async def run(self) -> Outcome:
        outcome = Outcome(Tally())
        async with open_wire(self._child.addresses) as wire:
            truth = await ask(wire, 0)
            await self._attack(wire, truth, Tally(), WARM_UP_SEED, WARM_UP_MESSAGES, None)
            outcome.before = await self._settled(None)
            self._say(f"before: {outcome.before}")
            begin = time.monotonic()
            with Watch(self._child.addresses) as watch:
                checking = asyncio.create_task(self._keep_checking(wire, truth, outcome))
                options = self._options
                await self._attack(wire, truth, outcome.tally, options.seed, options.messages, options.only_case)
                checking.cancel()
                [end] = await asyncio.gather(checking, return_exceptions=True)
                if not isinstance(end, asyncio.CancelledError):
                    outcome.tally.violate(f"proper requests are no longer checked: {end!r}"[:500])
            outcome.seconds = time.monotonic() - begin
            outcome.health_checks, outcome.longest_health_seconds = watch.check_count, watch.longest_seconds
            outcome.tally.violations += watch.failures
            outcome.tally.violation_count += len(watch.failures)
            await check_truth(wire, truth, outcome)
        outcome.after = await self._settled(outcome.before)
        outcome.faults = self._child.faults()
        return outcome

    async def _attack(
        self, wire: Wire, truth: Truth, tally: Tally, seed: int, messages: int, only_case: int | None
    ) -> None:
        """Runs cases until `messages` were sent, or only one case."""
        numbers = iter(range(10**9) if only_case is None else [only_case])
        told, shown = time.monotonic(), 0

        async def work() -> None:
            nonlocal told, shown
            while tally.messages.total() < messages and not self._child.has_ended:
                if (number := next(numbers, None)) is None:
                    return
                await self._run_case(wire, truth, tally, seed, number)
                while shown < len(tally.violations):
                    self._say(tally.violations[shown][:600])
                    shown += 1
                if time.monotonic() - told > 10:
                    told = time.monotonic()
                    self._say(f"{tally.messages.total()} messages, {tally.violation_count} violations")

        await asyncio.gather(*(work() for _ in range(self._options.at_once)))
        for endpoint, name in sorted(tally.undone):
            await close(wire, endpoint, name)

    async def _run_case(self, wire: Wire, truth: Truth, tally: Tally, seed: int, number: int) -> None:
        kind, random = case_of(seed, number, self._options.only_kind)
        attack = Attack(number, kind, random, wire, self._child.addresses["http"], truth, tally)
        try:
            await KINDS[kind](attack)
        except CaseFailedError:
            pass
        except Exception as error:
            attack.violate(f"the attacker failed: {error!r}"[:500])
        finally:
            await attack.clean_up()

    async def _keep_checking(self, wire: Wire, truth: Truth, outcome: Outcome) -> None:
        while True:
            await asyncio.sleep(CHECK_PAUSE)
            await check_truth(wire, truth, outcome)

    async def _settled(self, before: dict[str, Any] | None) -> dict[str, Any]:
        """What the services hold once it is no more than before, or no more changes; at the latest after some time."""
        last: dict[str, Any] = {}
        for _ in range(int(SETTLING_SECONDS)):
            now = await self._child.state()
            if holds_nothing(now) and (
                is_no_more(now, before) if before else all(now[name] == last.get(name) for name in SETTLED)
            ):
                return now
            last = now
            await asyncio.sleep(1.0)
        return last


async def check_truth(wire: Wire, truth: Truth, outcome: Outcome) -> None:
    """Proper requests, speculated and not, get what they always got."""
    try:
        for proposed in (0, 4):
            now = await ask(wire, proposed)
            outcome.truth_checks += 1
            if now != truth:
                outcome.tally.violate(f"with {proposed} proposed tokens the pair says {now}; it was {truth}")
    except NotServedError as error:
        outcome.tally.violate(f"a proper request was refused: {error}")


def holds_nothing(state: dict[str, Any]) -> bool:
    """No sequence, block or request is left."""
    models = [state["target"], state["draft"]]
    return not state["requests"] and not any(model["sequences"] or model["used_blocks"] for model in models)


def is_no_more(now: dict[str, Any], before: dict[str, Any]) -> bool:
    return now["tasks"] <= before["tasks"] and now["descriptors"] <= before["descriptors"] + MORE_DESCRIPTORS
