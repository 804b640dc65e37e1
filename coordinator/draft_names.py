"""The names of several drafts, and how they are written in a list of addresses."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from specpair.errors import InvalidFieldError
from specpair.options import FROM_TEXT, ON_THE_TARGET, Drafter, check_count

MAX_DRAFTS = 8
"""Drafts whose proposals are merged, at most."""
UNNAMED = "draft"
"""The name of a draft that was given as an address alone."""
LOCAL_DRAFTERS = tuple(drafter for drafter in Drafter if drafter not in (Drafter.MODEL, *ON_THE_TARGET))
"""Drafters that may stand in a list of drafts by their own name: the coordinator runs those of FROM_TEXT, and the first
draft that has it serves any other."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")


@dataclass(frozen=True, kw_only=True)
class DraftList:
    """The drafts of a configuration."""

    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The instances of each draft, by its name, in the order in which they were given."""
    names: tuple[str, ...] = ()
    """All that can be merged: those names and, where they were given, drafters."""

    @property
    def is_named(self) -> bool:
        """Whether more was given than the addresses of one draft."""
        return self.names not in ((), (UNNAMED,))


def read_drafts(entries: Sequence[str]) -> DraftList:
    """Reads entries `host:port`, `name=host:port` and `drafter`; several of one name are instances of one draft.

    Raises InvalidFieldError for a name that cannot be used. Addresses are not checked.
    """
    addresses: dict[str, list[str]] = {}
    names: dict[str, None] = {}
    for entry in entries:
        name, equals, address = entry.rpartition("=")
        if not equals and entry in LOCAL_DRAFTERS:
            names[entry] = None
            continue
        name = _checked(name) if equals else UNNAMED
        addresses.setdefault(name, []).append(address)
        names[name] = None
    if not addresses and (in_services := [name for name in names if name not in FROM_TEXT]):
        raise InvalidFieldError("draft", f"names {in_services[0]}, which needs the address of a draft service")
    check_count("draft", len(names), MAX_DRAFTS)
    return DraftList(addresses={name: tuple(own) for name, own in addresses.items()}, names=tuple(names))


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidFieldError("draft", f"names a draft {name!r}; a name has up to 63 letters, digits and _ . -")
    if name in tuple(Drafter):
        raise InvalidFieldError("draft", f"names a draft {name!r}, which is the name of a drafter")
    return name
