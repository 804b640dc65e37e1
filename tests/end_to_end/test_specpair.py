"""The `specpair` command with real processes, as a user runs it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from transformers import AutoTokenizer

from tests import tiny_encoder_decoders
from tests.tiny_models import generate_greedily, load_plain

MODELS = Path(__file__).parents[2] / "models"
BUNDLED, T5 = MODELS / "bundled", MODELS / "t5"
COMMAND = [sys.executable, "-m", "command"]
START_SECONDS = 100
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=START_SECONDS, env=ENVIRONMENT
    )


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in sockets]
    for probe in sockets:
        probe.close()
    return ports


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running_up() as address:
        yield address


@contextmanager
def running_up(*flags: str, http_port: int | None = None) -> Iterator[str]:
    """`specpair up` on free ports; stopped by Ctrl-C, which must leave no process behind."""
    port, free_http_port, draft_port, target_port, draft_metrics_port, target_metrics_port = free_ports(6)
    http_port = http_port or free_http_port
    ports = ["--port", str(port), "--draft-port", str(draft_port), "--target-port", str(target_port)]
    ports += ["--http-port", str(http_port)]
    ports += ["--draft-metrics-port", str(draft_metrics_port), "--target-metrics-port", str(target_metrics_port)]
    with subprocess.Popen(
        [*COMMAND, "up", "--dtype", "float32", *ports, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("ready"):
                break
        assert lines and lines[-1].startswith("ready"), "".join(lines)
        assert any(f"OpenAI-compatible API at http://127.0.0.1:{http_port}/v1" in line for line in lines)
        assert httpx.get(f"http://127.0.0.1:{http_port}/health").json()["status"] == "ready"
        yield f"127.0.0.1:{port}"
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(timeout=30) == 0, rest
    for number in (port, http_port, draft_port, target_port, draft_metrics_port, target_metrics_port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", number), timeout=1)


@pytest.mark.timeout(240)
def test_generate_json(address: str) -> None:
    """The document has everything, and the tokens are those of transformers `generate`."""
    prompt = "def read_lines(path):\n"
    done = run(
        *("generate", prompt, "--address", address, "--temperature", "0", "--max-tokens", "24", "--ignore-eos"),
        *("--num-speculative-tokens", "3", "--json"),
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (choice,) = document["choices"]
    assert choice["finish_reason"] == "length"
    assert document["usage"]["completion_tokens"] == len(choice["token_ids"]) == 24
    measured = choice["metrics"]["speculative_decoding"]
    assert measured["num_draft_tokens"] > 0
    assert sum(measured["num_accepted_tokens_per_pos"]) == measured["num_accepted_tokens"]
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(BUNDLED / "target" / "tokenizer.json"))
    expected = generate_greedily(load_plain(BUNDLED / "target"), tokenizer.encode(prompt).ids, 24)
    assert choice["token_ids"][: len(expected)] == expected
    assert choice["text"] == tokenizer.decode(choice["token_ids"])


@pytest.mark.timeout(240)
def test_generate_streams_text_and_a_summary(address: str) -> None:
    command = ["generate", "import os", "--address", address, "--max-tokens", "12", "--seed", "4", "--ignore-eos"]
    command += ["--num-speculative-tokens", "3"]
    done = run(*command)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout, "a pipe gets no colours"
    assert re.search(r"12 tokens in .* tokens/s .* acceptance rate .* tokens per round .* seed 4", done.stderr)
    again = run(*command)
    assert again.stdout == done.stdout


@pytest.mark.timeout(240)
def test_info_is_ready(address: str) -> None:
    done = run("info", "--address", address)
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("draft", "target", "Llama", "tokens proposed per round"):
        assert word in done.stdout


@pytest.mark.few_cases()
@pytest.mark.timeout(240)
def test_up_makes_the_target_deterministic() -> None:
    with running_up("--deterministic") as address:
        pair = json.loads(run("info", "--address", address, "--json").stdout)
    assert (pair["draft"]["deterministic"], pair["target"]["deterministic"]) == (False, True)


@pytest.mark.timeout(240)
def test_errors_are_one_clear_line(address: str) -> None:
    done = run("generate", "x", "--address", address, "--temperature", "-1")
    assert done.returncode != 0
    assert "temperature" in done.stderr and "100" in done.stderr
    assert "Traceback" not in done.stderr


def test_nobody_there() -> None:
    (port,) = free_ports(1)
    done = run("info", "--address", f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


@pytest.mark.timeout(240)
def test_up_with_a_prompt_completes_and_stops() -> None:
    """What `make run` does where the real pair cannot be had."""
    started = time.monotonic()
    done = run("up", "--prompt", "def fibonacci(n):", "--max-tokens", "16", "--temperature", "0", "--speedup")
    assert done.returncode == 0, done.stderr
    *text, last = done.stdout.strip().splitlines()
    assert text and re.match(r"speedup \d+\.\d\dx · .* same output both ways \(16 tokens\)", last)
    assert re.search("acceptance rate|no tokens proposed", done.stderr)
    assert time.monotonic() - started < START_SECONDS


@pytest.mark.timeout(240)
def test_up_with_a_head_needs_no_draft() -> None:
    done = run(
        "up",
        "--head",
        str(BUNDLED / "medusa"),
        "--prompt",
        "def fibonacci(n):",
        "--max-tokens",
        "16",
        "--temperature",
        "0",
    )
    assert done.returncode == 0, done.stderr
    assert "drafter medusa" in done.stderr and "acceptance rate" in done.stderr


@pytest.mark.few_cases()
@pytest.mark.timeout(240)
def test_up_reads_an_input_for_an_encoder() -> None:
    text = "the small dog sees a red house ."
    pair = ("--target", str(T5 / "target"), "--draft", str(T5 / "draft"))
    asked = ("--max-tokens", "20", "--temperature", "0", "--num-speculative-tokens", "3")
    done = run("up", *pair, "--encoder-input", text, *asked)
    assert done.returncode == 0, done.stderr
    tokenizer = AutoTokenizer.from_pretrained(T5 / "target")
    read = tokenizer(text).input_ids
    expected = tiny_encoder_decoders.generate_greedily(tiny_encoder_decoders.load_plain(T5 / "target"), read, 20)
    assert done.stdout.strip() == tokenizer.decode(expected, skip_special_tokens=True)
    assert "acceptance rate" in done.stderr


@pytest.mark.few_cases()
@pytest.mark.timeout(240)
def test_a_folder_without_a_model_stops_everything(tmp_path: Path) -> None:
    done = run("up", "--prompt", "x", "--target", str(tmp_path))
    assert done.returncode != 0
    assert "has no readable configuration" in done.stderr
