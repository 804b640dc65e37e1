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


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption(OPTION):
        return
    cases: dict[str, dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        if item.get_closest_marker("few_cases"):
            name, _, case = item.nodeid.partition("[")
            cases[name][case.removesuffix("]")] = item
    left_out = {own[case] for name, own in cases.items() for case in own.keys() - chosen(name, own)}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def chosen(name: str, cases: dict[str, pytest.Item]) -> set[str]:
    """The cases of a test that run. Raises UsageError for one that it does not have."""
    wanted = next(iter(cases.values())).get_closest_marker("few_cases")
    assert wanted is not None
    if wanted.args and isinstance(wanted.args[0], int):
        return set(Random(name).sample(list(cases), min(wanted.args[0], len(cases))))
    if unknown := set(wanted.args).difference(cases):
        raise pytest.UsageError(f"few_cases of {name}: no case is called {', '.join(sorted(unknown))}")
    return set(wanted.args)
