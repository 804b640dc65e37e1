"""Drafts made from the target with noise."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bench.apart.cells import Matrix
from bench.apart.disturbed_models import NOISES, WEIGHTS, target_folder, write_disturbed


def test_there_is_a_draft_for_every_acceptance_and_temperature() -> None:
    matrix = Matrix()
    assert set(NOISES) == {(a, t) for a in matrix.acceptances for t in matrix.temperatures}
    for temperature in matrix.temperatures:
        noises = [NOISES[acceptance, temperature] for acceptance in sorted(matrix.acceptances)]
        assert noises == sorted(noises, reverse=True), "more noise, less acceptance"


def test_matrices_get_noise_in_proportion_and_the_rest_stays(tmp_path: Path) -> None:
    source = Path(target_folder())
    write_disturbed(source, tmp_path / "draft", 0.1)
    before, after = load_file(source / WEIGHTS), load_file(tmp_path / "draft" / WEIGHTS)
    assert before.keys() == after.keys()
    for name, weight in before.items():
        noise = after[name].float() - weight.float()
        if weight.dim() == 2:
            assert (noise.std() / weight.float().std()).item() == pytest.approx(0.1, rel=0.1)
        else:
            assert torch.equal(after[name], weight)
    assert {file.name for file in source.iterdir()} == {file.name for file in (tmp_path / "draft").iterdir()}


def test_the_same_draft_is_made_again(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_disturbed(Path(target_folder()), tmp_path / name, 0.2)
    one, two = (load_file(tmp_path / name / WEIGHTS) for name in ("one", "two"))
    assert all(torch.equal(one[name], two[name]) for name in one)
