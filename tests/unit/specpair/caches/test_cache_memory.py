"""What the cache may take: in a container a share of its memory, not of the host's; on a GPU of its share."""

import math
from pathlib import Path

import pytest
import torch

from command.pair.gpu_shares import gpu_shares
from specpair.caches import cache_memory
from specpair.caches.cache_memory import GPU_SHARE, cache_bytes, gpu_cache_bytes
from specpair.engine_config import EngineConfig
from specpair.errors import InvalidFieldError

GIB = 1024**3


def group(folder: Path, limit: str, used: int, inactive: int) -> Path:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {inactive}\n")
    return folder


def test_files_that_were_read_count_as_free(tmp_path: Path) -> None:
    assert cache_memory.free_in_group(group(tmp_path, str(8 * GIB), 3 * GIB, GIB)) == 6 * GIB


def test_without_a_limit(tmp_path: Path) -> None:
    assert cache_memory.free_in_group(tmp_path) == math.inf
    assert cache_memory.free_in_group(group(tmp_path, "max", GIB, 0)) == math.inf


def test_the_smaller_of_host_and_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    free = cache_bytes(cpu, 0.9)
    monkeypatch.setattr(cache_memory, "CGROUP", group(tmp_path, str(2**20), 0, 0))
    assert cache_bytes(cpu, 0.1) == cache_memory.CPU_SHARE * 2**20 < free, "the share of a GPU says nothing here"
    monkeypatch.setattr(cache_memory, "CGROUP", group(tmp_path, "0", GIB, 0))
    assert cache_bytes(cpu, 0.9) == 0.0


@pytest.mark.parametrize(
    ("free", "held", "utilization", "left"),
    [
        (70, 10, 0.9, 62),  # of 80 GiB: 72 are ours, the model has 10 of them
        (30, 10, 0.5, 30),
        (20, 10, 0.9, 20),  # others took more than was left to them
        (70, 10, 0.1, 0),  # the model alone has more than its share
        (0, 10, 0.9, 0),
    ],
)
def test_a_process_keeps_to_its_share_of_a_gpu(free: int, held: int, utilization: float, left: int) -> None:
    given = gpu_cache_bytes(total=80 * GIB, free=free * GIB, held=held * GIB, utilization=utilization)
    assert given == pytest.approx(GPU_SHARE * left * GIB)


@pytest.mark.parametrize(("draft_model", "target_model"), [(1, 16), (2, 16), (0.5, 0.5)])
def test_two_processes_on_one_gpu_hold_less_than_is_there(draft_model: float, target_model: float) -> None:
    """Whichever is first, and whether or not the first has filled its cache when the second looks."""
    total = 24 * GIB
    shares = gpu_shares(0.9, "cuda:0", "cuda:0")
    models = (draft_model * GIB, target_model * GIB)
    for first, second in ((0, 1), (1, 0)):
        holds = []
        for taken_by in (first, second):
            free = total - sum(holds) - models[taken_by]
            cache = gpu_cache_bytes(total=total, free=free, held=models[taken_by], utilization=shares[taken_by])
            assert cache > 0
            holds.append(models[taken_by] + cache)
            assert holds[-1] <= shares[taken_by] * total
        assert sum(holds) <= 0.9 * total


@pytest.mark.parametrize(
    ("draft", "target", "is_shared"),
    [
        ("auto", "auto", True),
        ("auto", "cuda:0", True),
        ("cuda", "cuda:0", True),
        ("cuda:1", "cuda:1", True),
        ("cuda:1", "cuda:0", False),
        ("cuda:1", "auto", False),
        ("cpu", "cuda", False),
        ("cpu", "cpu", False),
        (None, "cuda", False),
    ],
)
def test_models_divide_the_gpu_that_they_share(draft: str | None, target: str, is_shared: bool) -> None:
    shares = gpu_shares(0.5, draft, target)
    assert (sum(shares) == pytest.approx(0.5)) is is_shared
    assert is_shared or shares == (0.5, 0.5)
    assert not is_shared or 0 < shares.draft < shares.target


@pytest.mark.parametrize("share", [0.0, -1.0, 1.01, math.nan])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(InvalidFieldError, match="gpu_memory_utilization"):
        EngineConfig(model="x", gpu_memory_utilization=share)
