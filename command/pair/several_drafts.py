"""Several drafts of `specpair up`: models, which have a service each, and drafters such as ngram, which have none."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command.draft_files import check_named
from command.failures import WRONG_USE, CommandError
from coordinator.draft_names import LOCAL_DRAFTERS
from specpair.options import FROM_TEXT, Merge

NO_DRAFT = "none"
"""As the coordinator's `--draft` says it, too."""


@dataclass(frozen=True, kw_only=True)
class SeveralDrafts:
    """What `--draft` names."""

    models: tuple[tuple[str, str], ...] = ()
    """Names and models, one for each draft service."""
    entries: tuple[str, ...] = ()
    """All of them in their order, for the coordinator: names of models and drafters."""
    has_services: bool = True
    """False without any: nothing is proposed, or the target's head proposes, or the coordinator by the text."""

    @property
    def first(self) -> str | None:
        """The model of the first draft service."""
        return self.models[0][1] if self.models else None

    def addresses(self, services: Sequence[str]) -> str:
        """The coordinator's `--draft`, with the address of each draft service."""
        if not self.has_services:
            return ",".join(self.entries) or NO_DRAFT
        if self.entries in ((), tuple(name for name, _ in self.models[:1])):
            return services[0]
        held = dict(zip((name for name, _ in self.models), services, strict=True)) if self.models else {}
        own = [f"{entry}={held[entry]}" if entry in held else entry for entry in self.entries]
        return ",".join(own if self.models else [services[0], *own])


def several_drafts(text: str | None) -> SeveralDrafts:
    """Reads MODEL, or a list of MODEL, NAME=MODEL and drafters; or `none`. A model without a name has that of its
    folder. A path that exists is a MODEL, whatever characters it has.

    Raises CommandError if two have one name, or if one is empty.
    """
    if text is None:
        return SeveralDrafts()
    if text == NO_DRAFT:
        return SeveralDrafts(has_services=False)
    words = [text] if os.path.exists(text) else [word.strip() for word in text.split(",")]
    models: dict[str, str] = {}
    entries: list[str] = []
    for word in words:
        if word in LOCAL_DRAFTERS:
            entries.append(word)
            continue
        given, equals, model = word.partition("=")
        if not equals or os.path.exists(word):
            given, model = "", word
        check_named({"--draft": model})
        name = given or _name_of(model)
        if name in models:
            raise CommandError(
                f"--draft: two drafts are {name}; name them, as in a={models[name]},b={model}", WRONG_USE
            )
        models[name] = model
        entries.append(name)
    has_services = any(entry not in FROM_TEXT for entry in entries)
    return SeveralDrafts(models=tuple(models.items()), entries=tuple(entries), has_services=has_services)


def left_to_services(fields: dict[str, Any], drafts: SeveralDrafts) -> dict[str, Any]:
    """The fields of a request without what the services are told: whether to merge and, if so or without a draft
    service, by which drafters."""
    is_told = not drafts.has_services or fields.get("merge") is Merge.TREE
    told = ("merge", "drafter") if is_told else ("merge",)
    return {name: value for name, value in fields.items() if name not in told}


def _name_of(model: str) -> str:
    """The last part of a path or of an id, as a name may be written."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", Path(model).name).lstrip("0123456789_.-")[:63] or "draft"
