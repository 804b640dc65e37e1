"""Finds out what a model is loaded from."""

from importlib.util import find_spec
from pathlib import Path

from specpair.errors import ModelRefusedError
from specpair.models.borrowing_checkpoint import BorrowingCheckpoint
from specpair.models.checkpoint import LENDER, Checkpoint
from specpair.models.folder_checkpoint import FolderCheckpoint
from specpair.named_models import resolve_model

GGUF = ".gguf"
GGUF_READERS = ("gguf", "accelerate")


def find_checkpoint(model: str, *, is_exact: bool = False) -> Checkpoint:
    """The checkpoint of a folder, a GGUF file or a Hugging Face id; `is_exact` keeps dequantised weights as they are.

    Raises ModelRefusedError.
    """
    whole = whole_checkpoint(model, is_exact)
    folder = Path(model)
    if not folder.is_dir():
        return whole
    settings = whole.settings()
    named = getattr(settings, LENDER, None)
    if named is None:
        return whole
    return BorrowingCheckpoint(folder, settings, whole_checkpoint(find_lender(folder, str(named)), is_exact))


def whole_checkpoint(model: str, is_exact: bool) -> Checkpoint:
    """The checkpoint of a model that has all of its weights."""
    path = Path(model)
    return open_gguf(path, is_exact) if path.suffix.lower() == GGUF else FolderCheckpoint(model)


def open_gguf(path: Path, is_exact: bool) -> Checkpoint:
    """The checkpoint of a GGUF file. Only here its readers are imported."""
    if not path.is_file():
        raise ModelRefusedError(f"{path} does not exist")
    if absent := [name for name in GGUF_READERS if find_spec(name) is None]:
        raise ModelRefusedError(f"{path} cannot be read without {' and '.join(absent)}: install specpair[models]")
    from specpair.models.gguf_checkpoint import GgufCheckpoint

    return GgufCheckpoint(path, is_exact=is_exact)


def find_lender(folder: Path, named: str) -> str:
    """The folder or file that a model in `folder` names as the one that lends its embeddings."""
    path = folder / resolve_model(named, "target")  # an absolute path stays as it is
    if not path.exists():
        raise ModelRefusedError(f"{folder} borrows the embeddings of {named}, which is neither a known name nor a path")
    return str(path)
