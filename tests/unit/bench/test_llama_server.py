"""A llama-server as a process: a program that only pretends to be one, and a real one where there is one."""

import os
import stat
import sys
import textwrap
from argparse import ArgumentTypeError
from pathlib import Path

import httpx
import pytest

from bench.llama_server import ServerPlan, llama_server_program, running, version_of
from command.failures import CommandError

PLAN = ServerPlan(target=Path("t.gguf"), draft=None, num_speculative_tokens=0, threads=2, slots=1, length=100)
DRAFTED = ServerPlan(
    target=Path("t.gguf"), draft=Path("d.gguf"), num_speculative_tokens=3, threads=2, slots=4, length=100
)


def program(folder: Path, body: str) -> str:
    """A program of this Python with the given text."""
    path = folder / "llama-server"
    path.write_text(f"#!{sys.executable}\n{textwrap.dedent(body)}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def pretender(folder: Path, *, speculates: bool = True) -> str:
    """Answers its health, unready at first, and its slots."""
    return program(
        folder,
        f"""
        import http.server, json, sys
        if "--version" in sys.argv: sys.exit(print("version: 7\\nbuilt somewhere"))
        if "--help" in sys.argv: sys.exit(print("--spec-draft-n-max N"))
        asked = []
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                body = json.dumps([{{"speculative": {speculates}}}]).encode()
                self.send_response(503 if len(asked) < 3 else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            def log_message(self, *words): pass
        port = int(sys.argv[sys.argv.index("--port") + 1])
        http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
        """,
    )


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def flag(plan: ServerPlan, name: str) -> str | None:
    words = plan.arguments(1)
    return words[words.index(name) + 1] if name in words else None


def test_a_plain_server_has_no_draft() -> None:
    assert flag(PLAN, "--model") == "t.gguf"
    assert flag(PLAN, "--spec-draft-model") is None
    assert flag(PLAN, "--threads") == flag(PLAN, "--threads-batch") == "2"


def test_a_fixed_length_is_drafted_whatever_the_draft_is_sure_of() -> None:
    assert flag(DRAFTED, "--spec-draft-model") == "d.gguf"
    assert flag(DRAFTED, "--spec-draft-n-max") == "3"
    assert flag(DRAFTED, "--spec-draft-p-min") == "0.0"


def test_without_a_fixed_length_the_draft_has_to_be_sure() -> None:
    plan = ServerPlan(**{**vars(DRAFTED), "num_speculative_tokens": None})
    assert flag(plan, "--spec-draft-n-max") == "16"
    assert flag(plan, "--spec-draft-p-min") == "0.75"


def test_every_slot_has_room_for_a_request() -> None:
    room = flag(DRAFTED, "--ctx-size")
    assert room is not None
    assert int(room) >= 4 * 100 + 4 * 3


async def test_servers_are_ready_inside_and_gone_behind(tmp_path: Path) -> None:
    async with running(pretender(tmp_path), [PLAN, DRAFTED]) as servers:
        for server in servers:
            async with httpx.AsyncClient(base_url=server.url) as client:
                assert (await client.get("/health")).status_code == 200
        pids = [server.pid for server in servers]
        assert all(map(is_alive, pids))
    assert not any(map(is_alive, pids))


async def test_a_failure_inside_stops_them(tmp_path: Path) -> None:
    pids: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        async with running(pretender(tmp_path), [PLAN]) as servers:
            pids += [server.pid for server in servers]
            raise KeyboardInterrupt
    assert pids
    assert not any(map(is_alive, pids))


async def test_a_draft_that_was_not_taken_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="vocabulary"):
        async with running(pretender(tmp_path, speculates=False), [DRAFTED]):
            pytest.fail("the draft was refused")


async def test_a_server_that_ends_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    dying = program(tmp_path, 'import sys\nprint("no such model")\nsys.exit(3)')
    with pytest.raises(CommandError, match=r"status 3(.|\n)*no such model"):
        async with running(dying, [PLAN]):
            pytest.fail("it is gone")


def test_a_llama_server_is_known_by_its_help(tmp_path: Path) -> None:
    path = pretender(tmp_path)
    assert llama_server_program(path) == path
    assert version_of(path) == "version: 7 built somewhere"


def test_another_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentTypeError, match="is not a llama-server"):
        llama_server_program(program(tmp_path, 'print("usage: something else")'))


@pytest.mark.parametrize("name", ["absent", ""])
def test_a_path_without_a_program_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArgumentTypeError, match="cannot be run"):
        llama_server_program(str(tmp_path / name))
