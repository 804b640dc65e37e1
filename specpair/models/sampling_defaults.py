"""What a model's `generation_config.json` says of sampling."""

import json
import logging
import struct
from dataclasses import fields
from pathlib import Path
from typing import Any

from transformers.utils.hub import cached_file

from specpair.errors import InvalidFieldError, ModelRefusedError
from specpair.model_info import SamplingDefaults
from specpair.models.hub import refuse_unreachable

log = logging.getLogger(__name__)

FILE = "generation_config.json"
GGUF = ".gguf"
MAX_FILE_BYTES = 1024 * 1024
NAMES = tuple(field.name for field in fields(SamplingDefaults))
IN_EVERY_MODE = "repetition_penalty"
"""transformers applies it without sampling, too."""
HINT = "; with --generation-config none the file is not used"


def read_sampling_defaults(model: str) -> SamplingDefaults:
    """The defaults of a folder or a Hugging Face id; none without the file, and for a GGUF file.

    Raises ModelRefusedError, which names the file and its field, for a value that no request could have: with any other
    value, answers would be drawn in another way than the file says.
    """
    path = _find(model)
    if path is None:
        return SamplingDefaults()
    document = _read(path)
    names = NAMES if document.get("do_sample") is not False else (IN_EVERY_MODE,)
    values = {name: _number(path, name, document[name]) for name in names if document.get(name) is not None}
    try:
        defaults = SamplingDefaults(**values)
        SamplingDefaults(**{name: _as_sent(value) for name, value in values.items()})
        return defaults
    except InvalidFieldError as error:
        raise ModelRefusedError(f"{path}: {error.message.removeprefix('sampling.')}{HINT}") from None


def _find(model: str) -> Path | None:
    local = Path(model)
    if local.exists():
        return local / FILE if (local / FILE).is_file() else None
    if local.suffix == GGUF:
        return None
    refuse_unreachable(model)
    try:
        found = cached_file(model, FILE, _raise_exceptions_for_missing_entries=False)
    except (OSError, ValueError):  # if the model is not there, or out of reach, whoever loads it says so
        log.warning("%s of %s cannot be looked for, so requests get no sampling options from it", FILE, model)
        return None
    return None if found is None else Path(found)


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ModelRefusedError(f"{path} has more than {MAX_FILE_BYTES} bytes{HINT}")
        document = json.loads(content)
    except OSError as error:
        raise ModelRefusedError(f"{path} cannot be read: {error.strerror}{HINT}") from None
    except (ValueError, RecursionError) as error:
        raise ModelRefusedError(f"{path} is not JSON: {error}{HINT}") from None
    if not isinstance(document, dict):
        raise ModelRefusedError(f"{path} is not a JSON object{HINT}")
    return document


def _number(path: Path, name: str, value: Any) -> Any:
    """The value, as a request could have it. transformers and vLLM have -1 for a top_k that keeps all tokens."""
    kinds = (int,) if name == "top_k" else (int, float)
    if type(value) not in kinds:
        raise ModelRefusedError(f"{path}: {name} is not a{' whole' if name == 'top_k' else ''} number{HINT}")
    if name == "top_k":
        return 0 if value == -1 else value
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _as_sent(value: Any) -> Any:
    """The value that coordinators get: a number with a point has 32 bits there."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0] if isinstance(value, float) else value
    except OverflowError:
        return float("inf")
