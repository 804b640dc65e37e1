"""What is wrong with the flags of `specpair up`, before anything is started.

The services would find out one after the other, some only once a model is loaded.
"""

from typing import Any

from command.draft_files import check_named, check_there
from command.failures import WRONG_USE, CommandError
from command.flags.option import configured
from command.pair.several_drafts import SeveralDrafts
from coordinator.config import CoordinatorConfig
from specpair.options import ON_THE_TARGET, Drafter
from specpair.server.config import ServerConfig

SOME_ADDRESS = "127.0.0.1:1"
"""Stands for services that have none yet."""


def check_models(target: str | None, own_draft: str | None, drafts: SeveralDrafts) -> None:
    """Raises CommandError for an empty model or a path where nothing is, before anything is started."""
    named = {"--target": target, "--own-draft": own_draft}
    check_named(named)
    check_there([*named.items(), *(("--draft", model) for _, model in drafts.models)])


def check_template(path: str | None) -> None:
    """Raises InvalidFieldError for a chat template that cannot be used, before anything is started."""
    if path is not None:
        from coordinator.requests.chat_template_file import read_chat_template  # jinja takes its time

        read_chat_template(path)


def check_services(values: dict[str, Any], drafts: SeveralDrafts) -> None:
    """Raises CommandError or InvalidFieldError for what draft services do not have or the coordinator would refuse."""
    _check_drafter(values["drafter"], drafts)
    _check_coordinator(values, drafts)


def _check_drafter(drafter: str, drafts: SeveralDrafts) -> None:
    if drafter in ON_THE_TARGET:
        problem = f"--drafter: {drafter} is a head of the target: --head loads it, and requests choose it"
        raise CommandError(problem, WRONG_USE)
    if not drafts.has_services and drafter not in (Drafter.MODEL, *drafts.entries):
        given = drafts.addresses(())
        raise CommandError(f"--drafter: {drafter} needs a draft service, and --draft is {given}", WRONG_USE)


def _check_coordinator(values: dict[str, Any], drafts: SeveralDrafts) -> None:
    places = {"target": SOME_ADDRESS, "draft": drafts.addresses([SOME_ADDRESS] * max(len(drafts.models), 1))}
    configured(CoordinatorConfig, values | places, server=ServerConfig(port=0)).check_merge()
