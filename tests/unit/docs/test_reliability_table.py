"""docs/reliability.md names tests that there are."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
TEXT = (TESTS.parent / "docs" / "reliability.md").read_text()


def test_every_file_is_there() -> None:
    named = {name.removeprefix("tests/") for name in re.findall(r"`([\w/]+/test_\w+\.py)", TEXT)}
    assert len(named) > 15
    assert [name for name in sorted(named) if not (TESTS / name).is_file()] == []


def test_every_test_is_in_the_file_named_before_it() -> None:
    missing, file = [], ""
    for found_file, test in re.findall(r"`([\w/]+/test_\w+\.py)?(?:::(test_\w+))?", TEXT):
        file = found_file.removeprefix("tests/") or file
        if test and f"def {test}(" not in (TESTS / file).read_text():
            missing.append(f"{file}::{test}")
    assert missing == []


def test_every_figure_is_there() -> None:
    results = re.findall(r"\]\(\.\./(bench/results/[\w.-]+)\)", TEXT)
    assert results
    assert [name for name in results if not (TESTS.parent / name).is_file()] == []
