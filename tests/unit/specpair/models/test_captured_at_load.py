"""What a runner of captured passes does when it is loaded, on CPU tensors: checks, captures, and what may go wrong."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specpair.errors import ModelRefusedError
from specpair.models.batch import Batch, PassOutput
from specpair.models.capture import EagerCapture, Work
from specpair.models.captured_buckets import ROWS
from specpair.models.captured_chain import PREPARED_ROWS
from specpair.models.captured_rows import HostRows
from specpair.models.captured_runner import PROMPTS, CapturedRunner
from specpair.models.chain_row import ChainKind
from specpair.models.self_check import run_chunks
from tests.tiny_models import make_model
from tests.unit.specpair.models.test_captured_runner import load


@pytest.fixture
def runner(tmp_path: Path) -> Any:
    """As with the kernel over block tables, for which the number of keys does not matter: all are gathered."""
    runner = load(make_model(tmp_path))
    runner._attention.is_sized = False
    runner._keys = lambda count: 32
    runner._captured.clear()
    return runner


def test_all_passes_are_captured_and_nothing_new_at_their_first_use(runner: Any) -> None:
    runner.prepare()
    assert runner.buckets == [(rows, 0) for rows in ROWS]
    holding = runner.cache.open([])
    first = run_chunks(runner, [holding], [[3, 1, 4]])[0]
    assert runner.buckets == [(rows, 0) for rows in ROWS] and first.isfinite().all()


def test_prompts_are_read_by_what_reads_them_later(runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there is room for; it is free again afterwards."""
    forward, passes, free = runner._plain.forward, [], runner.cache.free_block_count
    room = free * runner.cache.block_size

    def noted(batch: Batch) -> PassOutput:
        passes.append((len(batch.segments), {segment.token_count for segment in batch.segments}))
        return forward(batch)

    monkeypatch.setattr(runner._plain, "forward", noted)
    length = min(ROWS[-1] + 1, runner._width * runner.cache.block_size)
    runner.prepare()
    assert passes and passes == [(count, {length}) for count in PROMPTS if count * length <= room]
    assert runner.cache.free_block_count == free and not runner.misses


def test_usual_proposals_are_captured(runner: Any) -> None:
    runner.prepare_chains()
    kinds = ChainKind.usual(64)
    assert set(runner.chains._captured) == {(r, keys, k) for r in PREPARED_ROWS for k in kinds for keys in (None, 0)}


@pytest.mark.parametrize("fitting", [0, 4])
def test_what_finds_no_memory_is_captured_at_its_first_use(
    fitting: int, runner: Any, caplog: pytest.LogCaptureFixture
) -> None:
    eager, captures = EagerCapture(), []

    def capture(work: Work) -> Work:
        captures.append(work)
        if len(captures) == fitting + 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return eager(work)

    runner._capture = runner.chains._capture = capture
    runner.prepare()
    assert len(runner.buckets) == fitting and "not everything could be captured at load" in caplog.text
    holding = runner.cache.open([])
    assert run_chunks(runner, [holding], [[3, 1, 4]])[0].isfinite().all()
    captures.clear()
    runner.prepare_chains()
    assert len(runner.chains._captured) == fitting


def test_proposals_that_cannot_be_captured_are_drawn_token_by_token(
    runner: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """And the draft starts all the same."""

    def failing(work: Work) -> Work:
        raise RuntimeError("operation failed due to a previous error during capture\nand more")

    runner.chains._capture = failing
    runner.prepare_chains()
    assert runner.chains is None
    assert "cannot be captured: operation failed due to a previous error during capture" in caplog.text


def test_another_error_of_a_capture_refuses_the_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as Triton's, for a kernel that needs more shared memory than the device has."""

    def failing(self: CapturedRunner) -> None:
        raise Exception("out of resource: shared memory\nand more")

    monkeypatch.setattr(CapturedRunner, "prepare", failing)
    with pytest.raises(ModelRefusedError, match=r"passes cannot be captured: out of resource: shared memory$"):
        load(make_model(tmp_path))


@pytest.mark.parametrize("wrong", [1, 3])
def test_a_wrong_pass_of_few_rows_is_found(wrong: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which a pass of many rows, computed in another way, does not show."""
    run = CapturedRunner._run

    def running(self: CapturedRunner, rows: HostRows, wanted: Any = ()) -> Tensor:
        logits = run(self, rows, wanted)
        return logits.roll(1, -1) if len(rows) == wrong else logits

    monkeypatch.setattr(CapturedRunner, "_run", running)
    with pytest.raises(ModelRefusedError, match="logits through the cache differ"):
        load(make_model(tmp_path))
