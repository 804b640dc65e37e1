"""Files and functions are small enough to be read at once, and the unit tests lie as what they test does."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "specpair",
    "coordinator",
    "draft_service",
    "target_service",
    "command",
    "models",
    "bench",
    "deploy",
    "tests",
)
GENERATED = ROOT / "specpair" / "v1"
MOST_LINES_PER_FILE = 350
MOST_LINES_PER_FUNCTION = 60


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from (path for path in sorted((ROOT / folder).rglob("*.py")) if GENERATED not in path.parents)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(text: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def line_count(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """From `def` to the end, without decorators."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def test_no_file_is_too_long() -> None:
    large = {name_of(path) for path in sources() if len(path.read_text().splitlines()) > MOST_LINES_PER_FILE}
    assert large == set()


def test_no_function_is_too_long() -> None:
    large = {
        f"{name_of(path)}::{function.name}"
        for path in sources()
        for function in functions(path.read_text())
        if line_count(function) > MOST_LINES_PER_FUNCTION
    }
    assert large == set()


def test_every_folder_of_unit_tests_is_named_after_a_package() -> None:
    units = ROOT / "tests" / "unit"
    folders = {file.parent.relative_to(units) for file in units.rglob("test_*.py")}
    assert folders, "there are unit tests"
    assert {str(folder) for folder in folders if not (ROOT / folder).is_dir()} == set()
    assert {file.name for file in units.glob("*.py")} <= {"__init__.py"}, "each lies in the folder of what it tests"
