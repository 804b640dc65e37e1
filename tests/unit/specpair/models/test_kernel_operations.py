"""A runner of captured passes whose layers are kernels, by triton's interpreter, against the plain runner; and when the
kernels are refused."""

from pathlib import Path

import pytest
import torch

from specpair.kernels import availability
from specpair.models import load_runner as loading
from specpair.models.captured_runner import CapturedRunner
from specpair.models.self_check import run_chunks
from tests.tiny_models import make_model
from tests.unit.specpair.models.test_captured_runner import TOLERANCE, load


@pytest.mark.few_cases("qwen3-float16-0.02")
@pytest.mark.needs("triton")
@pytest.mark.parametrize(
    ("kind", "dtype", "tolerance"),
    [
        ("qwen2", "float32", TOLERANCE),  # with biases
        ("qwen3", "float32", TOLERANCE),  # with norms of heads
        ("qwen3", "float16", 2e-2),  # with products on tensor cores
    ],
)
def test_logits_are_those_of_the_plain_runner(
    kind: str, dtype: str, tolerance: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, together, and after a rollback. The check at load and its captures would take minutes here."""
    folder = make_model(tmp_path, kind, num_hidden_layers=1)
    plain = load(folder, "plain", dtype=dtype)
    monkeypatch.setattr(availability, "refusal", lambda *_: "")
    monkeypatch.setattr(CapturedRunner, "prepare", lambda _: None)
    monkeypatch.setattr(loading, "check", lambda *_: None)
    runner = load(folder, dtype=dtype)
    assert "a kernel over block tables" in runner.description
    logits = []
    for each in (runner, plain):
        holdings = [each.cache.open([]) for _ in range(2)]
        # In float32 these are too many rows for a kernel of products.
        parts = run_chunks(each, holdings, [[3, 1, 4, 1, 5, 9], [2, 6]])
        each.cache.truncate_to(holdings[0], 4)
        parts += run_chunks(each, holdings, [[7], [8, 2]]) + run_chunks(each, holdings[:1], [[5]])
        logits.append(torch.cat(parts))
    torch.testing.assert_close(logits[0], logits[1], atol=tolerance, rtol=tolerance)
    assert not runner.misses and runner.buckets == [(1, 0), (3, 0), (8, 0)]


@pytest.mark.few_cases(1)
@pytest.mark.needs("triton")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_trial_runs_every_kernel_and_finds_a_wrong_result(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    from specpair.kernels import trial
    from specpair.kernels.products import multiply_and_gate

    trial.run(torch.device("cpu"), dtype, 16)
    monkeypatch.setattr(trial, "multiply_and_gate", lambda x, weight: 1.1 * multiply_and_gate(x, weight))
    with pytest.raises(RuntimeError, match="of the largest number off"):
        trial.run(torch.device("cpu"), dtype, 16)


def test_without_a_gpu_or_triton_they_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert availability.refusal(torch.device("cpu"), torch.float32, 16) == "there is no GPU"
    monkeypatch.setattr(availability.util, "find_spec", lambda name: None)
    assert availability.refusal(torch.device("cuda:0"), torch.float32, 16) == "triton is not installed"


def test_what_a_compiler_raises_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise OSError("no C compiler\nand more")

    monkeypatch.setattr(availability.util, "find_spec", lambda name: object())
    monkeypatch.setattr(availability, "import_module", lambda name: type("Trial", (), {"run": staticmethod(failing)}))
    assert availability.refusal(torch.device("cuda:0"), torch.float32, 16) == "no C compiler"
