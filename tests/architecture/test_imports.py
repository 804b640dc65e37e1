"""Who may import whom. docs/architecture.md lists the rooms: they are what keeps a change in one place."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
SERVICES = ("coordinator", "draft_service", "target_service")
PRODUCT = ("specpair", *SERVICES, "command")
GENERATED = "specpair.v1"

# The rooms from the ground up: each may import those below it, never those beside or above it.
LAYERS = (
    (
        GENERATED,
        "specpair.errors",
        "specpair.flags",
        "specpair.version",
        "specpair.running_slope",
        "specpair.prefixes",
        "specpair.native",
        "specpair.kernels",
    ),
    ("specpair.options", "specpair.tracing", "specpair.security", "specpair.named_models"),
    (
        "specpair.model_info",
        "specpair.theory",
        "specpair.exactness",
        "specpair.speculation",
        "specpair.caches",
        "specpair.grammars",
        "specpair.sharding",
    ),
    ("specpair.wire", "specpair.rpc", "specpair.sequences"),
    ("specpair.client", "specpair.server", "specpair.engine_config", "specpair.drafting"),
    ("specpair.models",),
    ("specpair.engine", "specpair.rank", "specpair.whole_drafting"),
    (
        "coordinator.deadline",
        "coordinator.background",
        "coordinator.http_config",
        "coordinator.draft_names",
        "coordinator.reasoning_form",
        "coordinator.tool_call_form",
        "coordinator.adaptive",
        "draft_service.translation",
    ),
    ("coordinator.config", "draft_service.proposal"),
    ("coordinator.requests", "coordinator.admission", "draft_service.drafters"),
    ("coordinator.metrics", "coordinator.peers", "draft_service.ahead"),
    ("coordinator.pair",),
    ("coordinator.outputs",),
    ("coordinator.serving",),
    ("coordinator.http", "coordinator.service"),
    SERVICES,
    ("command",),
)
ROOMS = {room: floor for floor, layer in enumerate(LAYERS) for room in layer}

# Each package, with what nothing in it may import beside what is above it.
FORBIDDEN = {
    "specpair": ("bench", "models", "tests"),
    **dict.fromkeys(("specpair.speculation", "specpair.caches"), ("grpc", "google", GENERATED)),
    **dict.fromkeys(
        ("specpair.sequences", "specpair.models", "specpair.engine"),
        ("grpc", "google", GENERATED, "specpair.rpc", "specpair.wire", "specpair.server", "specpair.client"),
    ),
    **dict.fromkeys(("specpair.exactness", "specpair.theory"), ("grpc", "google", "torch", GENERATED)),
    **dict.fromkeys(("specpair.errors", "specpair.options"), ("grpc", "torch")),
    "specpair.native": ("torch", "numpy"),
    "specpair.wire": ("grpc",),
    "coordinator": (
        "torch",
        "transformers",
        "specpair.caches",
        "specpair.sequences",
        "specpair.models",
        "specpair.engine",
    ),
}

# Processes without a model load these, and must not pay for torch.
LIGHT = (
    "coordinator",
    "specpair.rpc",
    "command",
    GENERATED,
    "specpair.errors",
    "specpair.options",
    "specpair.theory",
)
HEAVY = ("torch", "transformers")

ENVIRONMENT_READERS = ("config.py", "__main__.py")
GRPC_SETTER = "specpair"
"""It sets what gRPC reads when it is imported, so it comes before any edge."""


class Import(NamedTuple):
    """One import statement in the product."""

    importer: str
    """Module that imports."""
    imported: str
    """Module or name that is imported, with its package."""


def module_files() -> Iterator[tuple[str, Path]]:
    for package in PRODUCT:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts).removesuffix(".__init__"), path


def imports_of(module: str, tree: ast.Module) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(module, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            yield from (Import(module, f"{node.module}.{alias.name}") for alias in node.names)


def is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


IMPORTS = [entry for module, path in module_files() for entry in imports_of(module, ast.parse(path.read_text()))]


def test_the_product_is_seen_whole() -> None:
    assert len(IMPORTS) > 100
    assert {entry.importer.split(".")[0] for entry in IMPORTS} == set(PRODUCT)


@pytest.mark.parametrize("package", FORBIDDEN)
def test_package_imports_nothing_forbidden(package: str) -> None:
    broken = [
        f"{entry.importer} imports {entry.imported}"
        for entry in IMPORTS
        if is_in(entry.importer, package) and any(is_in(entry.imported, name) for name in FORBIDDEN[package])
    ]
    assert broken == []


def room_of(name: str) -> str | None:
    """The room that a module is in: the longest that its name begins with; None outside the product."""
    return max((room for room in ROOMS if is_in(name, room)), key=len, default=None)


def test_every_module_is_in_a_room() -> None:
    assert [module for module, _ in module_files() if room_of(module) is None and module != "specpair"] == []


def test_no_import_runs_up() -> None:
    """So there is no circle of rooms, either."""
    broken = []
    for entry in IMPORTS:
        importer, imported = room_of(entry.importer), room_of(entry.imported)
        if importer and imported and importer != imported and ROOMS[imported] >= ROOMS[importer]:
            broken.append(f"{entry.importer} imports {entry.imported}")
    assert broken == []


def test_the_document_lists_the_rooms_in_their_layers() -> None:
    table = (ROOT / "docs" / "architecture.md").read_text().split("## The rooms")[1].split("\n## ")[0]
    listed: dict[str, int] = {}
    floor = 0
    for number, cell in re.findall(r"^\| (\d*) ?\| (`[^|]*) \|", table, re.MULTILINE):
        floor = int(number or floor)
        listed |= {
            name.rstrip("/").removesuffix(".py").replace("/", "."): floor for name in re.findall(r"`(.*?)`", cell)
        }
    assert listed == {room: floor + 1 for room, floor in ROOMS.items()}


@pytest.mark.parametrize("package", LIGHT)
def test_light_package_loads_without_torch(package: str) -> None:
    modules = [module for module, _ in module_files() if is_in(module, package) and not module.endswith("__main__")]
    assert modules
    script = f"import sys, {', '.join(modules)}; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def closure_of(names: Iterable[str]) -> set[str]:
    """The distributions that are installed with these, without extras."""
    found, left = set[str](), [Requirement(name).name for name in names]
    while left:
        name = canonicalize_name(left.pop())
        if name not in found:
            found.add(name)
            required = map(Requirement, requires(name) or ())
            left += [own.name for own in required if own.marker is None or own.marker.evaluate({"extra": ""})]
    return found


def test_the_coordinator_needs_no_extra() -> None:
    """Its image has the dependencies alone."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = closure_of(project["dependencies"])
    extras = {canonicalize_name(Requirement(name).name) for name in project["optional-dependencies"]["models"]}
    blocked = [
        module
        for module, owners in packages_distributions().items()
        if {canonicalize_name(owner) for owner in owners} & (extras - base)
    ]
    assert "torch" in blocked
    modules = [
        module for module, _ in module_files() if is_in(module, "coordinator") and not module.endswith("__main__")
    ]
    script = f"import sys; sys.modules.update(dict.fromkeys({blocked})); import {', '.join(modules)}"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""


def test_environment_is_read_at_the_edge_alone() -> None:
    readers = [
        module
        for module, path in module_files()
        if path.name not in ENVIRONMENT_READERS and module != GRPC_SETTER and not is_in(module, "command")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
    ]
    assert readers == []


def test_contract_folder_is_no_package() -> None:
    """The import name `proto` belongs to proto-plus."""
    assert [str(path.relative_to(ROOT)) for path in (ROOT / "proto").rglob("*.py*")] == []


def test_no_module_is_named_for_nothing() -> None:
    names = {"utils", "util", "common", "helpers", "misc"}
    assert [module for module, path in module_files() if path.stem in names] == []
