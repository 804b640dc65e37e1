"""The inputs of `specpair theory`: acceptances, distributions and files, as text."""

import json
from pathlib import Path

from command.failures import WRONG_USE, CommandError
from specpair.errors import InvalidFieldError
from specpair.theory.acceptance import check_pair
from specpair.theory.speedup import Acceptance

Named = dict[str, float]
MAX_FILE_BYTES = 2**26


def parse_acceptance(text: str) -> Acceptance:
    """One number, or a profile of several separated by commas."""
    chances = _numbers("--acceptance", text)
    return chances[0] if len(chances) == 1 else chances


def parse_pair(target: str, draft: str) -> tuple[list[str], list[float], list[float]]:
    """Names of tokens, then the distributions of target and draft. A token that only one side names has probability 0
    on the other. Raises InvalidFieldError."""
    first, second = _parse_distribution("--target", target), _parse_distribution("--draft", draft)
    if isinstance(first, dict) and isinstance(second, dict):
        names = list(dict.fromkeys([*first, *second]))
        rows = [first.get(name, 0.0) for name in names], [second.get(name, 0.0) for name in names]
    elif isinstance(first, list) and isinstance(second, list):
        names = [str(token_id) for token_id in range(len(first))]
        rows = first, second
    else:
        raise InvalidFieldError("--draft", "must name its tokens if and only if the target does")
    check_pair(*rows)
    return names, *rows


def read_text(path: Path) -> str:
    """The text of a file. Raises CommandError if it cannot be read."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise CommandError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB", WRONG_USE)
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}", WRONG_USE) from None
    except UnicodeDecodeError:
        raise CommandError(f"{path} is not UTF-8 text", WRONG_USE) from None


def _parse_distribution(field: str, text: str) -> list[float] | Named:
    text = text.strip()
    if text.endswith(".json"):
        text = read_text(Path(text)).strip()
    return _parse_json(field, text) if text.startswith(("[", "{")) else _numbers(field, text)


def _parse_json(field: str, text: str) -> list[float] | Named:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InvalidFieldError(field, f"is not valid JSON: {error}") from None
    entries = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in entries:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidFieldError(f"{field}[{key}]", "is not a number")
    return document


def _numbers(field: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.replace(",", " ").split() or [text]]
    except ValueError:
        raise InvalidFieldError(field, f"is {text!r}; it must be numbers separated by commas") from None
