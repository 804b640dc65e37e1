"""Numbers that the host writes: what of them reaches the device, and when they may be written again."""

from typing import Any

import pytest
import torch
from torch import Tensor

from specpair.models.staging import Staging

CPU = torch.device("cpu")


def test_what_is_written_before_work_is_what_it_loads() -> None:
    staging = Staging(5, CPU)

    def work() -> Tensor:
        staging.load(3)
        return staging.on_device.clone()

    staging.writable()[:] = [1, -2, 2**62 + 1, 4, 5]
    assert staging.on_device.tolist() == [0] * 5, "only work loads them"
    assert staging.run(work).tolist() == [1, -2, 2**62 + 1, 0, 0], "the first three"
    staging.writable()[1] = 7
    assert staging.run(work).tolist() == [1, 7, 2**62 + 1, 0, 0]


class NotedEvent:
    """In place of an event of the device."""

    def __init__(self, notes: list[str]):
        self.notes = notes

    def synchronize(self) -> None:
        self.notes.append("wait")

    def record(self) -> None:
        self.notes.append("record")


@pytest.mark.parametrize("fails", [False, True])
def test_the_host_waits_until_work_has_read_the_numbers(fails: bool) -> None:
    notes: list[str] = []
    staging: Any = Staging(1, CPU)
    staging._is_read = NotedEvent(notes)

    def work() -> Tensor:
        notes.append("work")
        if fails:
            raise RuntimeError("no memory")
        return staging.on_device

    for _ in range(2):
        staging.writable()[0] = 1
        notes.append("write")
        if fails:
            with pytest.raises(RuntimeError, match="no memory"):
                staging.run(work)
        else:
            assert staging.run(work) is staging.on_device
    assert notes == ["wait", "write", "work", "record"] * 2


def test_two_that_fill_one_tensor_have_memory_of_their_own() -> None:
    first = Staging(2, CPU)
    second = Staging(2, CPU, on_device=first.on_device)
    assert second.on_device is first.on_device
    first.writable()[:] = 1, 2
    second.writable()[:] = 3, 4
    for staging, expected in ((first, [1, 2]), (second, [3, 4]), (first, [1, 2])):
        staging.load(2)
        assert first.on_device.tolist() == expected
