"""A model of a hub that cannot be reached is refused at once, not after a minute of asking again."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from command.pair.local_pair import free_port

SETTINGS = "from specpair.models.folder_checkpoint import FolderCheckpoint as F; F('nobody/nothing').settings()"
DEFAULTS = "from specpair.models.sampling_defaults import read_sampling_defaults as r; r('nobody/nothing')"


class Empty(BaseHTTPRequestHandler):
    """A hub without models."""

    wait = 0.0
    """Seconds until it answers."""

    def do_HEAD(self) -> None:
        time.sleep(self.wait)
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def empty_hub(handler: type[Empty] = Empty) -> Iterator[str]:
    """The address of one that runs."""
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def errors_of(code: str, hub: str, home: Path, **variables: str) -> str:
    """What a process writes that asks this hub; the libraries read the variables when they are imported."""
    hubs = {"HF_ENDPOINT": hub, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "no_proxy": "127.0.0.1"}
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=Path(__file__).parents[4],
        env={**os.environ, **hubs, **variables},
    )
    return result.stderr


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("code", [SETTINGS, DEFAULTS], ids=["settings", "sampling defaults"])
def test_a_hub_that_does_not_answer_is_asked_once(tmp_path: Path, code: str) -> None:
    errors = errors_of(code, f"http://127.0.0.1:{free_port()}", tmp_path)
    assert "Retrying" not in errors
    said = "ModelRefusedError: nobody/nothing is neither a model folder nor a GGUF file nor a reachable"
    assert said in errors.splitlines()[-1]


@pytest.mark.few_cases()
def test_what_a_hub_says_is_left_to_those_who_load(tmp_path: Path) -> None:
    with empty_hub() as hub:
        errors = errors_of(SETTINGS, hub, tmp_path)
        assert "reachable Hugging Face id: nobody/nothing is not a local folder" in errors.splitlines()[-1]
        assert "ModelRefusedError" not in errors_of(DEFAULTS, hub, tmp_path)


@pytest.mark.few_cases()
def test_the_variable_of_the_library_says_how_long_a_hub_is_waited_for(tmp_path: Path) -> None:
    """Else nobody behind a slow proxy could load a model."""

    class Slow(Empty):
        wait = 2.0

    with empty_hub(Slow) as hub:
        errors = errors_of(SETTINGS, hub, tmp_path, HF_HUB_ETAG_TIMEOUT="1")
        assert "reachable Hugging Face id: timed out" in errors.splitlines()[-1]
