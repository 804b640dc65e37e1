"""The models of a run."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
MAKE_TINY = """
import sys
from pathlib import Path
from tests.tiny_models import make_model, make_variation
target, draft = Path(sys.argv[1]), Path(sys.argv[2])
make_variation(draft, make_model(target, "qwen3", max_position_embeddings=1024), spread=0.1)
"""


class PairFolders(NamedTuple):
    """Where target and draft lie, and how many tokens they know."""

    target: Path
    draft: Path
    vocab_size: int


def find_pair(name: str, folder: Path) -> PairFolders:
    """The bundled pair, or a tiny one made in `folder`: by a process of its own, so that this one needs no torch."""
    if name == "bundled":
        bundled = ROOT / "models" / "bundled"
        return PairFolders(bundled / "target", bundled / "draft", 4096)
    pair = PairFolders(folder / "target", folder / "draft", 64)
    command = [sys.executable, "-c", MAKE_TINY, str(pair.target), str(pair.draft)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    return pair
