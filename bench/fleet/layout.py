"""Several drafts, targets and coordinators on this machine, on imitated devices, for the time of a measurement."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rich.console import Console

from bench.apart.disturbed_models import draft_folder, target_folder
from command.pair.child import Child
from command.pair.local_pair import (
    LOOPBACK,
    ServicePlan,
    announce,
    free_port,
    ignore_line,
    plan_service,
    run_children,
    unless_dead,
)
from specpair.named_models import BUNDLED, MODELS, model_folder

ACCEPTANCE = 0.85
HEAD = str(MODELS / "bundled" / "medusa")
"""Of the bundled target."""
THREADS = 1
"""Of each model: the processes share the processors."""
MOST_SEQUENCES = 1024
"""More than any measurement opens, so that no limit but the devices' is met."""


class Proposer(StrEnum):
    """What proposes tokens."""

    DRAFT = "draft"
    AHEAD = "ahead"
    """A draft that works ahead."""
    HEAD = "head"
    """The target's own head."""
    NOTHING = "nothing"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How many processes there are, and how long the passes of their devices take."""

    draft_count: int = 1
    target_count: int = 1
    coordinator_count: int = 1
    verify: str = "160"
    """Milliseconds of a pass of a target; after a comma, of each row in it."""
    step: str = "16"
    """The same for a draft."""
    proposer: Proposer = Proposer.DRAFT

    @property
    def drafts(self) -> int:
        """The draft services: none where a head proposes."""
        return 0 if self.proposer is Proposer.HEAD else self.draft_count

    @property
    def name(self) -> str:
        counts = (self.drafts, "draft"), (self.target_count, "target"), (self.coordinator_count, "coordinator")
        return ", ".join(
            f"{count} {noun}{'s' * (count > 1)}" for count, noun in counts if count > (noun == "coordinator")
        )


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The running processes. Addresses are `host:port`."""

    drafts: list[str]
    targets: list[str]
    coordinators: list[str]
    coordinator_pids: list[int]
    proposer: Proposer


async def with_fleet(layout: Layout, measure: Callable[[Fleet], Coroutine[Any, Any, None]]) -> None:
    """Starts the processes, measures, stops them. Raises CommandError if one ends."""
    drafts = [
        model_plan("draft", draft_folder(ACCEPTANCE, 0.0), layout.step, {"--max-ahead-rows": MOST_SEQUENCES})
        for _ in range(layout.drafts)
    ]
    target, head = (target_folder(), {}) if layout.drafts else (model_folder(BUNDLED, "target"), {"--head": HEAD})
    targets = [model_plan("target", target, layout.verify, head) for _ in range(layout.target_count)]
    flags: dict[str, object] = {
        "--draft": ",".join(plan.address for plan in drafts) or "none",
        "--target": ",".join(plan.address for plan in targets),
        "--max-requests": MOST_SEQUENCES,
        "--max-requests-per-client": MOST_SEQUENCES,
        "--http-port": 0,
    }
    coordinators = [
        plan_service("coordinator", flags, host=LOOPBACK, port=free_port()) for _ in range(layout.coordinator_count)
    ]
    async with run_children([*drafts, *targets, *coordinators], ignore_line) as children:
        await unless_dead(children, announce(children, Console(stderr=True, highlight=False)))
        fleet = Fleet(
            drafts=[plan.address for plan in drafts],
            targets=[plan.address for plan in targets],
            coordinators=[plan.address for plan in coordinators],
            coordinator_pids=pids(children, coordinators),
            proposer=layout.proposer,
        )
        await unless_dead(children, measure(fleet))


def model_plan(role: str, model: str, pace: str, further: Mapping[str, object]) -> ServicePlan:
    """A paced service that any number of sequences of one client fits into."""
    flags: dict[str, object] = {
        "--model": model,
        "--pace": pace,
        "--threads": THREADS,
        "--metrics-port": 0,
        "--max-num-seqs": MOST_SEQUENCES,
        "--max-num-seqs-per-client": MOST_SEQUENCES,
        **further,
    }
    return plan_service(role, flags, host=LOOPBACK, port=free_port())


def pids(children: list[Child], plans: list[ServicePlan]) -> list[int]:
    by_address = {child.address: child.pid for child in children}
    return [by_address[plan.address] for plan in plans]
