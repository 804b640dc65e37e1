"""Resolves configured addresses to hosts."""

import asyncio
import socket

from coordinator.config import DNS_PREFIX
from specpair.rpc.addresses import join_address


async def resolve(address: str) -> frozenset[str]:
    """The `host:port` of each instance at a configured address. Raises OSError if the name cannot be resolved."""
    if not address.startswith(DNS_PREFIX):
        return frozenset([address])
    host, _, port = address.removeprefix(DNS_PREFIX).rpartition(":")
    found = await asyncio.get_running_loop().getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    return frozenset(join_address(str(where[0]), int(where[1])) for *_, where in found)
