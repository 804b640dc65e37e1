"""What is written to a terminal for a person who wants no escape codes."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.service.test_cli_chat import COMMAND, on_terminal
from tests.services import RunningPair, engine_config, running_pair

BUNDLED = Path(__file__).parents[2] / "models" / "bundled"
GENERATE = [*COMMAND[:-1], "generate", "import os", "--max-tokens", "12", "--num-speculative-tokens", "3"]


@pytest.fixture(scope="module")
async def pair() -> AsyncIterator[RunningPair]:
    async with running_pair(engine_config(BUNDLED / "target"), engine_config(BUNDLED / "draft")) as pair:
        yield pair


@pytest.mark.parametrize(
    ("before", "flags", "is_plain"),
    [((), (), False), ((), ("--no-color",), True), (("env", "NO_COLOR=1"), (), True)],
    ids=["usual", "--no-color", "NO_COLOR"],
)
async def test_a_generation_has_no_escape_codes_where_none_are_wanted(
    pair: RunningPair, before: tuple[str, ...], flags: tuple[str, ...], is_plain: bool
) -> None:
    async with on_terminal(*before, *GENERATE, "--address", pair.address, *flags) as terminal:
        shown = await terminal.until_end()
        assert await terminal.status() == 0
    assert re.search(r"12 tokens in .* seed \d+", shown)
    assert ("\x1b" in shown) is not is_plain
