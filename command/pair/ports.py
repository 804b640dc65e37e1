"""The ports of the services of `specpair up`, before they are started."""

import errno
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from command.failures import WRONG_USE, CommandError
from command.pair.local_pair import ServicePlan

FLAGS = ("--port", "--http-port", "--metrics-port")
"""Of a service."""


def check_free(plans: Sequence[ServicePlan]) -> None:
    """Raises CommandError, with the flags of `specpair up`, for all ports that are in use.

    The services would find out one after the other, some only once their model is loaded, and know their own flags.
    """
    taken: list[str] = []
    with ExitStack() as held:  # all at once, so that a port that two flags name is seen as well
        for flag, host, port in _ports(plans):
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            try:
                held.enter_context(socket.create_server((host, port), family=family))
            except OverflowError:
                continue  # no port: the service says which numbers there are
            except OSError as error:
                if error.errno == errno.EADDRINUSE:  # what else is wrong the service says
                    taken.append(f"{flag} {port}")
    if taken:
        problem = "is in use: choose another" if len(taken) == 1 else "are in use: choose others"
        raise CommandError(f"{', '.join(taken)} {problem}, or 0: a free one, of HTTP and metrics none", WRONG_USE)


def _ports(plans: Sequence[ServicePlan]) -> Iterator[tuple[str, str, int]]:
    """The flag of `specpair up`, the host and the port of each port that a service will open."""
    for plan in plans:
        given = dict(zip(plan.arguments, plan.arguments[1:], strict=False))
        prefix = "" if plan.name == "coordinator" else f"{plan.name}-"
        for flag in FLAGS:
            if port := int(given.get(flag, 0)):
                yield f"--{prefix}{flag.removeprefix('--')}", given["--host"], port
