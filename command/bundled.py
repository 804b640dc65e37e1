"""Where the bundled pair lies."""

from pathlib import Path
from typing import Literal

import specpair
from command.failures import CommandError

BUNDLED = "bundled"

Role = Literal["draft", "target"]


def resolve_model(model: str, role: Role) -> str:
    """The folder of the bundled model of a role for `bundled`; any other name as it is."""
    if model != BUNDLED:
        return model
    folder = Path(specpair.__file__).resolve().parents[1] / "models" / BUNDLED / role
    if not (folder / "config.json").is_file():
        raise CommandError("the bundled pair is not part of this installation; name a folder or a Hugging Face id")
    return str(folder)
