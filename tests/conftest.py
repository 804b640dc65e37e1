"""What holds for every test."""

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import specpair  # noqa: F401 - before gRPC
from specpair.engine import device_thread
from specpair.server.garbage import collect_only_new

pytest_plugins = ["tests.few_cases", "tests.needs"]

for name in [name for name in os.environ if name.startswith("SPECPAIR_")]:
    del os.environ[name]  # they set options, of which tests expect the defaults

os.environ["HF_HUB_OFFLINE"] = "1"  # whoever cannot reach it tries again for half a minute

if not any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/dxg")):  # before anything imports triton
    os.environ.setdefault("TRITON_INTERPRET", "1")

# In many tests the event loop and the device threads of all services share one interpreter. To change places after
# 0.2 ms, as in a process of one service, would double their time.
device_thread.SWITCH_SECONDS = sys.getswitchinterval()

# Times on a busy machine say nothing about the code; pytest-timeout catches what hangs. Continuous integration has the
# same examples each time, so that only a change can make it fail; everybody else looks for new ones.
settings.register_profile("specpair", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("specpair")


def pytest_collection_finish() -> None:
    """The collector is set up as in a service, since it would look at thousands of tests again and again."""
    collect_only_new()


@pytest.fixture(scope="module", params=["compiled", "numpy"])
def arithmetic(request: pytest.FixtureRequest) -> Iterator[None]:
    """Has the tests of a module compute with the compiled library, and once more with numpy alone."""
    from specpair.native import library

    if request.param == "compiled" and library.native_library() is None:
        pytest.skip("needs a C compiler")
    with pytest.MonkeyPatch.context() as patched:
        if request.param == "numpy":
            patched.setattr(library, "_quick", lambda found, keeps_lock: None)
        yield


@pytest.fixture
def by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has draws, decoding and judging computed by numpy, the reference, for tests that break it on purpose. A draft
    draws token by token."""
    from specpair.models.chain_miss import ChainMiss
    from specpair.models.native_chains import NativeChains
    from specpair.native import library

    monkeypatch.setattr(library, "_quick", lambda found, keeps_lock: None)
    monkeypatch.setattr(NativeChains, "refusal", lambda chains, options: ChainMiss.FAILED)


@pytest.fixture(autouse=True)
def root_logger_as_before() -> Iterator[None]:
    """A command that a test runs in this process sends the log to a stream that is closed afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
