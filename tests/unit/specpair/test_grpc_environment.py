"""gRPC's settings: set before it is imported, and only where they were tried."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import specpair

ROOT = Path(__file__).parents[3]
PROGRAM = """
import os, sys
import {module}
print("grpc" in sys.modules, os.environ.get("GRPC_EXPERIMENTS"))
"""


def test_the_pinned_grpc_is_the_one_that_was_compared() -> None:
    pinned = (ROOT / "constraints.txt").read_text()
    assert f"\ngrpcio=={specpair.GRPC_KNOWN}" in pinned, "measure a call with and without the event engine again"


@pytest.mark.skipif(not version("grpcio").startswith(specpair.GRPC_KNOWN), reason="another gRPC")
@pytest.mark.parametrize("module", ["command", "coordinator", "draft_service", "target_service", "bench"])
def test_a_package_sets_them_before_grpc_is_imported(module: str) -> None:
    environment = {"PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=module)], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == ["False", "-event_engine_client,-event_engine_listener"], done.stderr


def test_a_setting_of_the_user_stays() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module="specpair")],
        cwd=ROOT,
        env={"PATH": "", "GRPC_EXPERIMENTS": "mine"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split()[1] == "mine"
