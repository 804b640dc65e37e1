"""The health check: whether requests are served, and with which services."""

from dataclasses import dataclass
from enum import StrEnum

from coordinator.http.front_end import FrontEnd
from specpair.errors import SpecpairError


class Presence(StrEnum):
    """Whether a service is connected."""

    CONNECTED = "connected"
    AWAY = "away"
    NONE = "none"
    """Not configured."""


@dataclass(frozen=True, kw_only=True)
class Health:
    """The content of /health. Both fields are None before the pair is connected and while the process stops."""

    target: Presence | None = None
    draft: Presence | None = None

    @property
    def is_ready(self) -> bool:
        """Whether requests are served: a target is needed; without a draft they are only slower."""
        return self.target is Presence.CONNECTED

    def document(self) -> dict[str, str]:
        status = {"status": "ready" if self.is_ready else "not ready"}
        return status | {name: value for name in ("target", "draft") if (value := getattr(self, name)) is not None}


def health_of(front_end: FrontEnd) -> Health:
    """The current health of the front end's pair."""
    try:
        pair = front_end.serving.pair
    except SpecpairError:
        return Health()
    drafts = pair.drafts.values() or ([] if pair.draft is None else [pair.draft])
    draft = _presence(any(own.is_there for own in drafts)) if drafts else Presence.NONE
    return Health(target=_presence(pair.target.is_there), draft=draft)


def _presence(is_there: bool) -> Presence:
    return Presence.CONNECTED if is_there else Presence.AWAY
