"""What holds for every test."""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

import specpair  # noqa: F401 - before gRPC

pytest_plugins = ["tests.needs"]

# Times on a busy machine say nothing about the code; pytest-timeout catches what hangs.
settings.register_profile("specpair", deadline=None)
settings.load_profile("specpair")


@pytest.fixture(scope="module", params=["compiled", "numpy"])
def arithmetic(request: pytest.FixtureRequest) -> Iterator[None]:
    """Has the tests of a module compute with the compiled library, and once more with numpy alone."""
    from specpair.native.library import native_library

    native_library.cache_clear()
    if request.param == "compiled" and native_library() is None:
        pytest.skip("needs a C compiler")
    yield
    native_library.cache_clear()


@pytest.fixture(autouse=True)
def root_logger_as_before() -> Iterator[None]:
    """A command that a test runs in this process sends the log to a stream that is closed afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
