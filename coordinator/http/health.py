"""Whether requests are served, and by whom."""

from dataclasses import dataclass
from enum import StrEnum

from coordinator.http.front_end import FrontEnd
from specpair.errors import SpecpairError


class Presence(StrEnum):
    """Whether a service is there."""

    CONNECTED = "connected"
    AWAY = "away"
    NONE = "none"
    """There is to be none."""


@dataclass(frozen=True, kw_only=True)
class Health:
    """What /health tells. Nothing is known of the pair before it is connected and when the process stops."""

    target: Presence | None = None
    draft: Presence | None = None

    @property
    def is_ready(self) -> bool:
        """Without a draft requests are served more slowly, without a target not at all."""
        return self.target is Presence.CONNECTED

    def document(self) -> dict[str, str]:
        status = {"status": "ready" if self.is_ready else "not ready"}
        return status | {name: value for name in ("target", "draft") if (value := getattr(self, name)) is not None}


def health_of(front_end: FrontEnd) -> Health:
    """The health of what the front end serves now."""
    try:
        pair = front_end.serving.pair
    except SpecpairError:
        return Health()
    draft = Presence.NONE if pair.draft is None else _presence(pair.draft.is_there)
    return Health(target=_presence(pair.target.is_there), draft=draft)


def _presence(is_there: bool) -> Presence:
    return Presence.CONNECTED if is_there else Presence.AWAY
