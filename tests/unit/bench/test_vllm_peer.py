"""vLLM as a peer of the comparison: its servers, its cases and its place in the tables. A program that only pretends to
be an interpreter with vLLM stands for it."""

import json
import os
import stat
import sys
import textwrap
from argparse import ArgumentTypeError
from dataclasses import replace
from pathlib import Path

import pytest

from bench.case import Case, Peer
from bench.comparison import block_of, tables_of
from bench.comparison_rows import rows_of
from bench.measurement import Counts, Measurement, Output, Turn
from bench.options import BenchOptions
from bench.progress import Progress
from bench.vllm_options import VllmOptions, vllm_python
from bench.vllm_peer import vllm_peer
from bench.vllm_server import VllmPlan
from command.failures import CommandError
from command.pair.child import STOP_SECONDS

VLLM = VllmOptions(python="python", version="1", dtype="float32")
OPTIONS = BenchOptions(target="target", draft="draft", ks=(2,), batch_sizes=(1,), vllm=VLLM, max_tokens=4)
PLAN = VllmPlan(
    python="python",
    target="target",
    draft="draft",
    dtype="float32",
    num_speculative_tokens=2,
    threads=2,
    slots=4,
    length=100,
)


def pretender(folder: Path, body: str) -> str:
    """An interpreter of ours that runs this whatever it is given."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\n{textwrap.dedent(body)}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


SERVER = """
    import http.server, json, os, sys
    if "-c" in sys.argv: sys.exit(print("a word of the log\\n0.32.0"))
    words = dict(zip(sys.argv, sys.argv[1:]))
    drafted = json.loads(words.get("--speculative-config", '{"num_speculative_tokens": 0}'))["num_speculative_tokens"]
    asked = []
    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self, status, body):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        def do_GET(self):
            asked.append(self.path)
            self.answer(503 if len(asked) < 3 else 200, b"")
        def do_POST(self):
            sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            files = sorted(os.listdir(words["--model"]))
            if files != ["config.json", "model.safetensors"]: return self.answer(400, repr(files).encode())
            events = [{"choices": [{"token_ids": [token, drafted]}]} for token in sent["prompt"]]
            lines = [f"data: {json.dumps(event)}\\n\\n" for event in events]
            self.answer(200, "".join([*lines, "data: [DONE]\\n"]).encode())
        def log_message(self, *words): pass
    http.server.HTTPServer(("127.0.0.1", int(words["--port"])), Handler).serve_forever()
"""


@pytest.fixture
def options(tmp_path: Path) -> BenchOptions:
    """A pair as files with names alone, the draft with a file that is no model's."""
    for model in ("target", "draft"):
        (tmp_path / model).mkdir()
        for file in ("config.json", "model.safetensors", *["tables.safetensors"] * (model == "draft")):
            (tmp_path / model / file).write_text("")
    vllm = replace(VLLM, python=pretender(tmp_path, SERVER))
    return replace(OPTIONS, target=str(tmp_path / "target"), draft=str(tmp_path / "draft"), vllm=vllm)


def case(k: int) -> Case:
    return Case(peer=Peer.VLLM, temperature=0.0, num_speculative_tokens=k)


async def test_each_number_of_drafted_tokens_has_a_server(options: BenchOptions) -> None:
    async with vllm_peer(options, Progress(), 8) as peer:
        for k in (0, 2):
            output = await peer.generate(case(k), [[5, 6, 7], [8, 9]], 4, seed=0)
            assert output.token_ids == [[5, k, 6, k, 7, k], [8, k, 9, k]]
            assert (output.tokens, output.counts.rounds) == (6, 3), "without the first messages"
        pids = [server.pid for server in peer.servers]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_refusal_is_said(options: BenchOptions) -> None:
    (Path(options.target) / "vocab.txt").write_text("")
    async with vllm_peer(options, Progress(), 8) as peer:
        with pytest.raises(CommandError, match=r"400: .*vocab\.txt"):
            await peer.generate(case(0), [[5]], 4, seed=0)


async def test_a_server_that_ends_is_an_error_with_its_last_words(options: BenchOptions, tmp_path: Path) -> None:
    dying = pretender(tmp_path, 'import sys\nprint("no such model")\nsys.exit(3)')
    with pytest.raises(CommandError, match=r"status 3(.|\n)*no such model"):
        async with vllm_peer(replace(options, vllm=replace(VLLM, python=dying)), Progress(), 8):
            pytest.fail("it is gone")


async def test_one_that_ends_ends_what_it_started(options: BenchOptions, tmp_path: Path) -> None:
    """What it started has its standard output, and would be waited for."""
    python = pretender(tmp_path, f"{textwrap.dedent(starting(tmp_path))}sys.exit(3)")
    with pytest.raises(CommandError, match="status 3"):
        async with vllm_peer(replace(options, vllm=replace(VLLM, python=python)), Progress(), 8):
            pytest.fail("it is gone")
    assert not is_running(int((tmp_path / "child").read_text()))


async def test_one_that_does_not_end_is_killed_with_what_it_started(
    options: BenchOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.vllm_server.GRACE_SECONDS", -STOP_SECONDS)
    stubborn = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    python = pretender(tmp_path, textwrap.dedent(starting(tmp_path)) + stubborn + textwrap.dedent(SERVER))
    assert options.vllm is not None
    async with vllm_peer(replace(options, ks=(), vllm=replace(options.vllm, python=python)), Progress(), 8):
        pass
    assert not is_running(int((tmp_path / "child").read_text()))


def starting(folder: Path) -> str:
    """Starts a process that stays, and notes which."""
    return f"""
    import signal, subprocess, sys
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open({str(folder / "child")!r}, "w").write(str(child.pid))
    """


def is_running(pid: int) -> bool:
    """Not so once it has ended, whether or not anybody has asked how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_plain_server_has_no_draft() -> None:
    assert "--speculative-config" not in replace(PLAN, num_speculative_tokens=0).arguments(1)
    words = PLAN.arguments(1)
    config = json.loads(words[words.index("--speculative-config") + 1])
    assert config == {"method": "draft_model", "model": "draft", "num_speculative_tokens": 2}


def test_options_of_the_shell_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    monkeypatch.setenv("PYTHONPATH", "here")
    found = PLAN.environment()
    assert {"VLLM_USE_V2_MODEL_RUNNER", "PYTHONPATH"}.isdisjoint(found)
    assert found["VLLM_CPU_OMP_THREADS_BIND"] == "0-1"


def test_an_interpreter_tells_the_version(tmp_path: Path) -> None:
    path = pretender(tmp_path, SERVER)
    assert vllm_python(path) == (path, "0.32.0")


@pytest.mark.parametrize(("body", "message"), [("raise SystemExit('no vllm')", "has no vLLM.*no vllm"), ("", "cannot")])
def test_an_interpreter_without_vllm_is_refused(tmp_path: Path, body: str, message: str) -> None:
    path = pretender(tmp_path, body) if body else str(tmp_path / "absent")
    with pytest.raises(ArgumentTypeError, match=message):
        vllm_python(path)


def test_cases_are_plain_and_with_each_k() -> None:
    names = [case.name for case in block_of(OPTIONS, 0.0, 1) if case.peer is Peer.VLLM]
    assert names == ["vLLM K=0", "vLLM K=2"]
    assert Peer.VLLM not in {case.peer for case in block_of(replace(OPTIONS, vllm=None), 0.0, 1)}


def test_every_case_is_compared_with_its_fastest() -> None:
    options = replace(OPTIONS, has_transformers=False)
    speeds = {"vLLM K=0": 20.0, "vLLM K=2": 40.0, "specpair adaptive": 80.0}
    block = block_of(options, 0.0, 1)
    rows = rows_of(block, [turn(case, speeds.get(case.name, 10.0)) for case in block])
    found = {row.case: row.to_vllm.value for row in rows if row.to_vllm is not None}
    assert found["specpair adaptive"] == pytest.approx(2.0)
    assert found["vLLM K=0"] == pytest.approx(0.5)
    assert "to_vllm|x best vLLM" in tables_of(options, block, rows)[1].columns


def turn(case: Case, speed: float) -> Measurement:
    """One turn of 10 tokens after the first."""
    output = Output(
        token_ids=[[1, 2, 3]],
        first_token_seconds=0.1,
        tokens=10,
        seconds=10 / speed,
        output_seconds=10 / speed,
        round_seconds=[],
        counts=Counts(rounds=10),
    )
    return Measurement(turn=Turn(case=case, prompt=0, repetition=0), output=output)
