"""Which rank a process is, by its environment."""

import pytest

from specpair.errors import InvalidFieldError
from specpair.sharding.config import Membership, membership_of_environment

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
WHOLE = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def given(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name, value in values.items():
        monkeypatch.setenv(name, value)


def test_without_a_rank_this_process_starts_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, MASTER_ADDR="10.0.0.1", WORLD_SIZE="2")
    assert membership_of_environment(2) is None


def test_a_rank_by_address(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, **WHOLE)
    assert membership_of_environment(2) == Membership(rank=1, size=2, local_rank=0, local_size=1)


def test_a_rank_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, **{**WHOLE, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})
    assert membership_of_environment(2) == Membership(rank=1, size=2, local_rank=1, local_size=2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"WORLD_SIZE": "4"}, "is 2, but WORLD_SIZE is 4"),
        ({"RANK": "2"}, "RANK is 2, but WORLD_SIZE is 2"),
        ({"RANK": "one"}, "RANK is 'one', not a number"),
        ({"WORLD_SIZE": ""}, "WORLD_SIZE is '', not a number"),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR is not"),
    ],
)
def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], message: str) -> None:
    given(monkeypatch, **{**WHOLE, **changes})
    with pytest.raises(InvalidFieldError, match=f"tensor_parallel_size: .*{message}"):
        membership_of_environment(2)
