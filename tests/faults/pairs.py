"""The models of a run."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

HEADS = ("eagle", "medusa", "blockwise", "pass", "mtp")
"""Drafters in the target."""
OWN_DRAFTS = ("none", "ngram", "prompt-lookup", "model")
"""What may guess the tokens of the draft model."""
MAKE_HEAD = """
import sys
from pathlib import Path
from tests.tiny_heads import make_head
from tests.tiny_target_heads import make_lookahead, make_medusa, make_mtp_target
kind, target, head = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
if kind == "mtp":
    make_mtp_target(target, max_position_embeddings=1024)
else:
    {"eagle": make_head, "medusa": make_medusa, "blockwise": make_medusa, "pass": make_lookahead}[kind](head)
"""
ROOT = Path(__file__).parents[2]
MAKE_TINY = """
import sys
from pathlib import Path
from tests.tiny_models import make_model, make_variation
target, draft, second = map(Path, sys.argv[1:])
make_variation(draft, make_model(target, "qwen3", max_position_embeddings=1024), spread=0.1)
make_variation(second, draft, spread=0.1, seed=1)
"""


class PairFolders(NamedTuple):
    """Where target and draft lie, and how many tokens they know."""

    target: Path
    draft: Path
    vocab_size: int
    second: Path
    """A model that may guess the draft's tokens."""
    head: str | None = None
    """What the target is given as `--head`."""


def find_pair(name: str, folder: Path, head: str | None = None) -> PairFolders:
    """The bundled pair, or a tiny one made in `folder`: by a process of its own, so that this one needs no torch. With
    the `head` of a drafter, a tiny one."""
    if name == "bundled":
        assert head is None, "heads are made for the tiny pair"
        bundled = ROOT / "models" / "bundled"
        return PairFolders(bundled / "target", bundled / "draft", 4096, bundled / "draft")
    pair = PairFolders(folder / "target", folder / "draft", 64, folder / "second")
    command = [sys.executable, "-c", MAKE_TINY, *map(str, (pair.target, pair.draft, pair.second))]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    if head is None:
        return pair
    command = [sys.executable, "-c", MAKE_HEAD, head, str(pair.target), str(folder / "head")]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    return pair._replace(head="mtp" if head == "mtp" else str(folder / "head"))
