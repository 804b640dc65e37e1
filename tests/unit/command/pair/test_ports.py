"""`specpair up` looks at its ports before it starts anything."""

import socket
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from command.main import app
from command.pair.local_pair import LOOPBACK, free_port

FREE = ["--port", "0", "--http-port", "0", "--target-port", "0", "--target-metrics-port", "0"]


@pytest.fixture
def taken() -> Iterator[str]:
    """A port on which somebody listens."""
    with socket.create_server((LOOPBACK, 0)) as server:
        yield str(server.getsockname()[1])


def refusal(*flags: str) -> str:
    result = CliRunner().invoke(app, ["up", "--draft", "ngram", *FREE, *flags])
    assert result.exit_code == 2 and result.stdout == "", result.output
    return result.stderr


@pytest.mark.parametrize("flag", ["--port", "--http-port", "--target-port", "--target-metrics-port"])
def test_a_port_that_is_in_use_is_named_by_its_flag(flag: str, taken: str) -> None:
    assert refusal(flag, taken).startswith(f"specpair: {flag} {taken} is in use: choose another, or 0")


def test_all_that_are_in_use_are_named_at_once(taken: str) -> None:
    own = str(free_port())
    said = refusal("--http-port", own, "--target-metrics-port", own, "--port", taken)
    assert said.startswith(f"specpair: --port {taken}, --http-port {own} are in use: choose others")


def test_ports_of_a_draft_that_is_not_started_are_not_looked_at(taken: str) -> None:
    said = refusal("--draft-port", taken, "--draft-metrics-port", taken, "--port", taken)
    assert said.startswith(f"specpair: --port {taken} is in use")
