"""Which cases of slow tests run with `--few-cases`, as `make test` does; without it all of them run.

A test is marked by the ids of these cases, `few_cases("token", "block")`, or by their number, `few_cases(6)`: then they
are drawn with the test's name as the seed, so they are the same in each run. With `few_cases()` none runs.
"""

from collections import defaultdict
from random import Random

import pytest

OPTION = "--few-cases"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, action="store_true", help="of slow tests a few cases alone, as their markers say")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"few_cases(*cases): with {OPTION} these cases alone run, or so many")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption(OPTION):
        return
    cases: dict[str, dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        if item.get_closest_marker("few_cases"):
            name, _, case = item.nodeid.partition("[")
            cases[name][case.removesuffix("]")] = item
    if not is_partial(config):
        check_names(cases)
    left_out = {own[case] for name, own in cases.items() for case in own.keys() - chosen(name, own)}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def is_partial(config: pytest.Config) -> bool:
    """Whether a test may have been collected with some of its cases alone, as when what failed runs once more."""
    return bool(config.getoption("lf", default=False) or any("::" in name for name in config.args))


def check_names(cases: dict[str, dict[str, pytest.Item]]) -> None:
    """Raises UsageError for a case that a test does not have."""
    for name, own in cases.items():
        if unknown := {str(case) for case in wanted(own) if not isinstance(case, int)}.difference(own):
            raise pytest.UsageError(f"few_cases of {name}: no case is called {', '.join(sorted(unknown))}")


def chosen(name: str, cases: dict[str, pytest.Item]) -> set[str]:
    """The cases of a test that run."""
    match wanted(cases):
        case (int(count),):
            return set(Random(name).sample(list(cases), min(count, len(cases))))
        case names:
            return set(cases).intersection(map(str, names))


def wanted(cases: dict[str, pytest.Item]) -> tuple[object, ...]:
    """What the marker of a test says."""
    marker = next(iter(cases.values())).get_closest_marker("few_cases")
    assert marker is not None
    return marker.args
