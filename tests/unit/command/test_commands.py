"""The command line without services: help, versions, and one clear line for everything that is wrong."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from command.main import app
from coordinator.config import number_or_auto
from specpair.flags import listed

NOWHERE = "127.0.0.1:1"
K_BELOW_0 = [[*command, "--num-speculative-tokens", "-1"] for command in (["generate", "x"], ["chat"], ["trace", "x"])]
TO_SHOWN = "it must be between 0 and the server's limit, which `specpair info` shows"


def run(*arguments: str, stdin: str | bytes = "") -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    result = CliRunner().invoke(app, list(arguments), input=stdin, env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["up", "serve", "generate", "info", "--version"]),
        (["up"], ["--draft", "--target", "--num-speculative-tokens", "--prompt", "--port"]),
        (["serve"], ["draft", "target", "coordinator"]),
        (
            ["serve", "draft"],
            ["--model", "--max-model-len", "--max-num-seqs", "SPECPAIR_MODEL", "50051"],
        ),
        (["serve", "target"], ["--dtype", "--max-num-batched-tokens", "--num-blocks", "50052"]),
        (["serve", "coordinator"], ["--draft-timeout", "--target-timeout", "SPECPAIR_TARGET", "50050"]),
        (["generate"], ["--temperature", "--rule", "--stop", "--json", "--chat", "SPECPAIR_ADDRESS", "LOSSY"]),
        (["info"], ["--json", "--address"]),
    ],
)
def test_help_names_the_options(arguments: list[str], expected: list[str]) -> None:
    status, stdout, _ = run(*arguments, "--help")
    assert status == 0
    assert [word for word in expected if word not in stdout] == []


def test_the_version() -> None:
    status, stdout, _ = run("--version")
    assert status == 0 and stdout.startswith("specpair ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate"], "prompt: is missing: give the text to continue, or - to read it from standard input"),
        (["generate", "x", "--max-tokens", "-1"], "--max-tokens: is -1; it must be between 1 and 4294967295"),
        (["generate", "x", "--seed", "-1"], "--seed: is -1"),
        (["generate", "x", "--top-k", "-1"], "--top-k: is -1"),
        *((command, f"--num-speculative-tokens: is -1; {TO_SHOWN}\n") for command in K_BELOW_0),
        (["generate", "x", "--num-tree-tokens", "-1"], f"--num-tree-tokens: is -1; {TO_SHOWN}\n"),
        (["generate", "x", "--logprobs", "-1"], "--logprobs: is -1; it must be between 0 and 20\n"),
        (["generate", "x", "--stop-token-id", "-1"], "--stop-token-id: is -1"),
        (["generate", "x", "--banned-token-id", "4294967296"], "--banned-token-id: is 4294967296"),
        (["generate", "x", "--n", "-1"], "--n: is -1; it must be between 1 and the server's limit\n"),
        (["generate", "x", "--logit-bias", "5:1"], "--logit-bias: is '5:1'; it must be ID=BIAS, as in 42=-1.5"),
        (["generate", "x", "--logit-bias", "-5=1"], "--logit-bias: is -5"),
        (["serve", "draft", "--model", "m", "--port", "99999"], "--port: is 99999; it must be between 0 and 65535"),
        (["serve", "coordinator", "--target", "here"], "--target: is 'here'; it must be host:port"),
        (["serve", "coordinator", "--http-port", "99999"], "--http-port: is 99999"),
        (["theory", "speedup", "--acceptance", "2", "--cost-ratio", "0"], "--acceptance: is 2"),
        (["serve", "coordinator", "--num-speculative-tokens", "17"], "--num-speculative-tokens: is 17"),
        (["up", "--num-speculative-tokens", "-1"], "--num-speculative-tokens: is -1; it must be between 0 and 16"),
        (
            ["up", "--num-speculative-tokens", "9", "--max-num-speculative-tokens", "8"],
            "--num-speculative-tokens: is 9; it must be between 0 and 8",
        ),
        (["up", "--num-tree-tokens", "65"], "--num-tree-tokens: is 65; it must be between 0 and 64"),
        (["up", "--merge", "tree"], "--merge: is tree; it needs 2 to 8 drafts in --draft"),
        (["up", "--draft", "none", "--merge", "tree"], "--merge: is tree; it needs 2 to 8 drafts in --draft"),
        (["up", "--draft", ""], "--draft: names an empty model"),
        (["up", "--draft", "bundled,"], "--draft: names an empty model"),
        (["up", "--draft", "a=,ngram"], "--draft: names an empty model"),
        (["up", "--target", " "], "--target: names an empty model"),
        (["up", "--own-draft", ""], "--own-draft: names an empty model"),
        (["serve", "draft", "--model", ""], "--model: names an empty model"),
        (["serve", "draft", "--model", "m", "--own-draft", ""], "--own-draft: names an empty model"),
        (["serve", "target", "--model", ""], "--model: names an empty model"),
        (["up", "--target", "/no/such"], "--target: there is no '/no/such'; a model is a local folder, a GGUF file,"),
        (["up", "--draft", "bundled,a=~/no"], "--draft: there is no '~/no'"),
        (["up", "--own-draft", "./no"], "--own-draft: there is no './no'"),
        (["serve", "draft", "--model", "no.gguf"], "--model: there is no 'no.gguf'"),
        (["serve", "target", "--model", "no/such/folder"], "--model: there is no 'no/such/folder'"),
        (["info", "--address", "127.0.0.1"], "--address: is '127.0.0.1'; it must be host:port"),
        (["info", "--address", "http://127.0.0.1:8000"], "--address: is 'http://127.0.0.1:8000'; it must be host:port"),
    ],
)
def test_a_wrong_value_is_one_line_and_status_2(arguments: list[str], message: str) -> None:
    status, stdout, stderr = run(*arguments)
    assert status == 2 and stdout == ""
    assert stderr.startswith(f"specpair: {message}") and stderr.count("\n") == 1


def test_the_number_of_proposed_tokens_is_a_number_or_auto() -> None:
    assert [number_or_auto(text) for text in ("auto", "0", "5")] == [None, 0, 5]
    status, _, stderr = run("serve", "coordinator", "--num-speculative-tokens", "some")
    assert status == 2 and "'some' is neither auto nor a number" in stderr
    status, stdout, _ = run("serve", "coordinator", "--help")
    assert status == 0 and "auto|N" in stdout


@pytest.mark.parametrize(
    ("text", "words"), [("", ()), ("a", ("a",)), ("coordinator,", ("coordinator",)), (" a ,b", ("a", "b"))]
)
def test_lists_are_words_between_commas(text: str, words: tuple[str, ...]) -> None:
    assert listed(text) == words


def test_input_that_is_no_text_is_refused() -> None:
    status, _, stderr = run("generate", "-", stdin=b"ab\xff")
    assert status == 2 and stderr == "specpair: prompt: is not valid UTF-8 at byte 2\n"


SPEEDUP = ["theory", "speedup", "--acceptance", "0.8", "--cost-ratio", "0.1"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
@pytest.mark.parametrize("arguments", [SPEEDUP, [*SPEEDUP, "--json"], ["--version"], ["info", "--help"]])
def test_output_without_room_is_one_line_and_status_1(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "command", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert result.returncode == 1
    assert result.stderr == "specpair: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("arguments", [["generate", "x"], ["generate", "x", "--json"], ["info"], ["info", "--json"]])
def test_an_absent_coordinator_is_one_line_and_status_1(arguments: list[str]) -> None:
    status, stdout, stderr = run(*arguments, "--address", NOWHERE)
    assert status == 1 and stdout == ""
    problem = f"the coordinator at {NOWHERE} cannot be reached"
    assert stderr == f"specpair: {problem}; `specpair up` starts one, --address says where one is\n"


INTERRUPTED_IMPORT = """
import os, signal, time
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1)
except BaseException as error:
    raise ImportError("as an extension module may say") from error
"""


def hear_interrupts() -> None:
    """Tests in the background of a shell ignore SIGINT, and what they start would, too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("is_script", [False, True], ids=["module", "script"])
@pytest.mark.parametrize("name", ["typer", "grpc", "zipfile"])  # the last is imported first of all, to read versions
def test_ctrl_c_while_the_modules_are_imported_is_one_line(tmp_path: Path, is_script: bool, name: str) -> None:
    (tmp_path / f"{name}.py").write_text(INTERRUPTED_IMPORT)
    script = tmp_path / "bin" / "specpair"
    script.parent.mkdir()
    script.write_text("from command.__main__ import run\nrun()\n")
    result = subprocess.run(
        [sys.executable, *([str(script)] if is_script else ["-m", "command"]), "info"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[3]}"},
        preexec_fn=hear_interrupts,
    )
    assert (result.returncode, result.stderr) == (130, "specpair: interrupted\n")


PORTS = ("port", "draft-port", "target-port", "http-port", "draft-metrics-port", "target-metrics-port")


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("more", [["--prompt", "x"], [f"--{name}=0" for name in PORTS]], ids=["once", "lasting"])
def test_up_reports_a_service_that_dies_with_the_end_of_its_log(tmp_path: Path, more: list[str]) -> None:
    """The target's folder is empty, so its process ends; the others are stopped, and nothing stays behind."""
    empty = str(tmp_path)
    result = subprocess.run(
        [sys.executable, "-m", "command", "up", "--draft", empty, "--target", empty, *more],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=Path(__file__).parents[3],
    )
    assert result.returncode == 1
    assert "ended with status 1; the end of its log:" in result.stderr
    assert "Traceback" not in result.stderr
