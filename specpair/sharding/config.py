"""Which rank of which group this process is: told by whoever started it, or by the environment."""

import os
import socket
from dataclasses import dataclass

from specpair.errors import InvalidFieldError

INTERFACE = "GLOO_SOCKET_IFNAME"
"""Variable that names the network interface of a group; torch reads it."""
FIELD = "tensor_parallel_size"


@dataclass(frozen=True, kw_only=True)
class Membership:
    """One rank of a group."""

    rank: int
    size: int
    local_rank: int
    """Number of the rank on its machine, which is also the number of its GPU."""
    local_size: int
    """Ranks of the group on this machine."""
    meeting_file: str | None = None
    """Where the ranks of one machine find each other; None if the environment names an address."""

    @property
    def is_leader(self) -> bool:
        return self.rank == 0


def membership_of_environment(size: int) -> Membership | None:
    """The membership that `torchrun` or an operator set by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; None without
    RANK. Raises InvalidFieldError if they are not those of a group of `size` ranks."""
    if "RANK" not in os.environ:
        return None
    rank, world = number("RANK"), number("WORLD_SIZE")
    if world != size:
        raise InvalidFieldError(FIELD, f"is {size}, but WORLD_SIZE is {world}")
    if rank >= world:
        raise InvalidFieldError(FIELD, f"RANK is {rank}, but WORLD_SIZE is {world}")
    if missing := [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]:
        raise InvalidFieldError(FIELD, f"RANK is set, but {' and '.join(missing)} is not")
    local_size = number("LOCAL_WORLD_SIZE") if "LOCAL_WORLD_SIZE" in os.environ else 1
    local_rank = number("LOCAL_RANK") if "LOCAL_RANK" in os.environ else 0
    return Membership(rank=rank, size=world, local_rank=local_rank, local_size=local_size)


def number(name: str) -> int:
    """The variable as a number. Raises InvalidFieldError."""
    text = os.environ.get(name, "")
    if not text.isdecimal():
        raise InvalidFieldError(FIELD, f"{name} is {text!r}, not a number")
    return int(text)


def rank_environment(local_rank: int) -> dict[str, str]:
    """The environment of a rank that is started on this machine."""
    return {**os.environ, "LOCAL_RANK": str(local_rank)}


def use_loopback() -> None:
    """Lets the group of this process listen on the loopback interface alone, unless the environment says otherwise."""
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if loopback is not None:
        os.environ.setdefault(INTERFACE, loopback)
