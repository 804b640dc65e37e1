"""A group of ranks: the leader tells, the others hear. On torch's own distribution, with gloo for what is told."""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore
from torch.distributed import distributed_c10d as c10d

from specpair.sharding.config import Membership, use_loopback
from specpair.sharding.orders import Beat, Order, PassOrder, Stop, decode, encode

LEADER = 0
LOAD_SECONDS = 3600.0
"""Within this time the slowest rank must have read its weights after the fastest."""
JOIN_SECONDS = 600.0
POLL_SECONDS = 0.02
FIRST_NUMBERS = 1024
"""Numbers of the first message; what an order has beyond them follows in a second one."""
BEATS_PER_TIMEOUT = 4
MOST_SECONDS_BETWEEN_BEATS = 2.0
"""A rank that dies on another machine while nobody asks for anything is noticed by the next beat alone."""

log = logging.getLogger(__name__)


class GroupLostError(Exception):
    """A rank ended or does not answer: the group cannot go on, and only a new one helps."""


class ShardGroup:
    """This rank's part in its group. One per process. Orders are given by one thread at a time."""

    def __init__(self, member: Membership, check: Callable[[], None] = lambda: None):
        """Joins the group, and returns when all ranks have. `check` is called meanwhile, and may raise."""
        self.member = member
        self._lock = threading.RLock()
        self._lost = ""
        self._on_lost: Callable[[str], object] | None = None
        self._told_at = time.monotonic()
        self._left = threading.Event()
        self._timeout = LOAD_SECONDS
        join(member, check)
        control = dist.new_group(backend="gloo", timeout=timedelta(seconds=LOAD_SECONDS))
        assert isinstance(control, dist.ProcessGroup)
        self._control = control

    def limit(self, seconds: float) -> None:
        """From now on a rank that does not answer for so long is lost. The leader begins to beat."""
        self._timeout = seconds
        for group in list(c10d._world.pg_map):  # also those over which the layers reduce
            c10d._set_pg_timeout(timedelta(seconds=seconds), group)
        if self.member.is_leader:
            threading.Thread(target=self._beat, name="group beat", daemon=True).start()

    def agree_on_least(self, number: int) -> int:
        """The smallest of the ranks' numbers; all ranks call it."""
        shared = torch.tensor([number])
        dist.all_reduce(shared, dist.ReduceOp.MIN, self._control)
        return int(shared.item())

    @contextmanager
    def leading(self, order: Order) -> Iterator[None]:
        """Tells the others the order; inside the context the leader carries it out as well. Leader only.

        Raises GroupLostError, also for what fails inside: the others may wait in the middle of it.
        """
        with self._lock:
            if self._lost:
                raise GroupLostError(self._lost)
            try:
                self._tell(encode(order))
                yield
            except Exception as error:
                what = "a pass of the group failed" if isinstance(order, PassOrder) else "a rank does not answer"
                self.lose(f"{what}: {first_line(error)}")
                raise GroupLostError(self._lost) from error

    def hear(self) -> Order:
        """The leader's next order. Others only. Raises GroupLostError."""
        try:
            first = torch.empty(FIRST_NUMBERS, dtype=torch.long)
            dist.broadcast(first, LEADER, self._control)
            count, *numbers = first.tolist()
            if count > len(numbers):
                rest = torch.empty(count - len(numbers), dtype=torch.long)
                dist.broadcast(rest, LEADER, self._control)
                numbers += rest.tolist()
            return decode(numbers[:count])
        except (RuntimeError, ValueError) as error:
            raise GroupLostError(f"the leader is gone: {first_line(error)}") from error

    def acknowledge(self) -> None:
        """Answers a beat: every rank calls it."""
        dist.all_reduce(torch.zeros(1), group=self._control)

    def lose(self, reason: str) -> None:
        """Notes why the group cannot go on. The first reason counts."""
        if self._lost or self._left.is_set():
            return
        self._lost = reason
        log.error("the group is lost: %s", reason)
        if self._on_lost is not None:
            self._on_lost(reason)

    def on_lost(self, callback: Callable[[str], object]) -> None:
        """Calls back, in any thread, with the reason, when the group is lost."""
        self._on_lost = callback
        if self._lost:
            callback(self._lost)

    @property
    def is_lost(self) -> bool:
        return bool(self._lost)

    def leave(self) -> None:
        """Ends the group: the leader tells the others."""
        self._left.set()
        if self.member.is_leader and not self._lost:
            try:
                with self.leading(Stop()):
                    pass
            except GroupLostError:
                log.warning("a rank had gone before the end")
        if not self._lost:
            dist.destroy_process_group()

    def abandon(self) -> None:
        """Leaves a group that could not start, without a word."""
        self._left.set()
        dist.destroy_process_group()

    def _tell(self, numbers: list[int]) -> None:
        room = FIRST_NUMBERS - 1
        first = [len(numbers), *numbers[:room]]
        first += [0] * (FIRST_NUMBERS - len(first))
        dist.broadcast(torch.tensor(first), LEADER, self._control)
        if len(numbers) > room:
            dist.broadcast(torch.tensor(numbers[room:]), LEADER, self._control)
        self._told_at = time.monotonic()

    def _beat(self) -> None:
        """Finds ranks that went while nobody asked for anything. A pass is a sign of life as well."""
        pause = min(self._timeout / BEATS_PER_TIMEOUT, MOST_SECONDS_BETWEEN_BEATS)
        while not self._left.wait(pause):
            if time.monotonic() - self._told_at < pause:
                continue
            try:
                with self.leading(Beat()):
                    self.acknowledge()
            except GroupLostError:
                return


def join(member: Membership, check: Callable[[], None]) -> None:
    """Makes the process's default group, with all ranks."""
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    timeout = timedelta(seconds=LOAD_SECONDS)
    if member.meeting_file is None:
        dist.init_process_group(backend, init_method="env://", timeout=timeout)
        return
    use_loopback()
    store = FileStore(member.meeting_file, member.size)
    wait_for_all(store, member, check)
    dist.init_process_group(
        backend, store=c10d.PrefixStore("group", store), rank=member.rank, world_size=member.size, timeout=timeout
    )


def wait_for_all(store: c10d.Store, member: Membership, check: Callable[[], None]) -> None:
    """Waits until every rank is there, so that a rank that ends before does not leave the others waiting."""
    names = [f"rank-{rank}" for rank in range(member.size)]
    store.set(names[member.rank], "here")
    deadline = time.monotonic() + JOIN_SECONDS
    while not store.check(names):
        check()
        if time.monotonic() > deadline:
            raise GroupLostError(f"not all of {member.size} ranks came within {JOIN_SECONDS:g} s")
        time.sleep(POLL_SECONDS)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, without torch's place in its source; else its type."""
    lines = re.sub(r"^\[[^\]]*\] ", "", str(error).strip()).splitlines()
    return lines[0] if lines else type(error).__name__
