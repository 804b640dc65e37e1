"""A verification under way."""

from typing import NamedTuple

from coordinator.peers.targets import TargetLink


class CallOut(NamedTuple):
    """A call that was sent and not answered yet."""

    link: TargetLink
    name: str
    step: int
    length: int
    """Committed tokens before its proposal."""
