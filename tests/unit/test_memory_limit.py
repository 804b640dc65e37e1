"""In a container the cache is sized by the container's memory, not by the host's."""

import math
from pathlib import Path

import pytest
import torch

from specpair.engine import host

GIB = 1024**3


def group(folder: Path, limit: str, used: int, inactive: int) -> Path:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {inactive}\n")
    return folder


def test_files_that_were_read_count_as_free(tmp_path: Path) -> None:
    assert host.free_in_group(group(tmp_path, str(8 * GIB), 3 * GIB, GIB)) == 6 * GIB


def test_without_a_limit(tmp_path: Path) -> None:
    assert host.free_in_group(tmp_path) == math.inf
    assert host.free_in_group(group(tmp_path, "max", GIB, 0)) == math.inf


def test_the_smaller_of_host_and_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = host.free_memory(torch.device("cpu"))
    monkeypatch.setattr(host, "CGROUP", group(tmp_path, str(2**20), 0, 0))
    assert host.free_memory(torch.device("cpu")) == host.CPU_CACHE_SHARE * 2**20 < free
    monkeypatch.setattr(host, "CGROUP", group(tmp_path, "0", GIB, 0))
    assert host.free_memory(torch.device("cpu")) == 0.0
