"""Drafts whose acceptance is chosen: copies of the bundled draft model, disturbed by noise.

The target of `bench.apart` is the bundled draft model itself: what a pass would cost is imitated, so the model only has
to be a real one, and small. Its drafts are copies with normal noise on every matrix. The more noise, the fewer tokens
are accepted. The same noise costs more acceptance at T = 1 than at T = 0, so each temperature has its own.
"""

import shutil
from pathlib import Path

from specpair.named_models import BUNDLED, MODELS, model_folder

WORK = MODELS / "work" / "apart"
WEIGHTS = "model.safetensors"
SEED = 1
NOISES = {(0.85, 0.0): 0.165, (0.85, 1.0): 0.09, (0.6, 0.0): 0.25, (0.6, 1.0): 0.225}
"""Standard deviation of the noise, as a share of that of the matrix, by the wanted acceptance under the token rule and
the temperature."""


def target_folder() -> str:
    """The folder of the target."""
    return model_folder(BUNDLED, "draft")


def draft_folder(acceptance: float, temperature: float) -> str:
    """The folder of the draft for an acceptance and a temperature of NOISES, made at the first call."""
    noise = NOISES[acceptance, temperature]
    folder = WORK / f"noise-{noise:g}-seed-{SEED}"
    if not folder.exists():
        write_disturbed(Path(target_folder()), folder, noise)
    return str(folder)


def write_disturbed(source: Path, folder: Path, noise: float) -> None:
    """Writes the model in `source` with noise to `folder`, which appears when it is complete."""
    import torch  # here: `--help` does not need it
    from safetensors.torch import load_file, save_file

    unfinished = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(source, unfinished)
    generator = torch.Generator().manual_seed(SEED)
    weights = load_file(source / WEIGHTS)
    for name, weight in weights.items():
        if weight.dim() == 2:
            normal = torch.randn(weight.shape, generator=generator) * weight.float().std() * noise
            weights[name] = (weight.float() + normal).to(weight.dtype)
    save_file(weights, unfinished / WEIGHTS, metadata={"format": "pt"})
    unfinished.rename(folder)
