"""What a draft service loads: the named model and table, else the bundled ones where its drafter needs them."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from command.failures import WRONG_USE, CommandError
from draft_service.config import TABLE_NAME
from specpair.engine_config import MODEL_KINDS
from specpair.named_models import BUNDLED, resolve_model
from specpair.options import Drafter

WITH_MODEL = (Drafter.MODEL, Drafter.NGRAM_MODEL)
WITH_TABLE = (Drafter.UNIGRAM, Drafter.BIGRAM)


def check_named(models: Mapping[str, str | None]) -> None:
    """Raises CommandError if a flag names an empty model: a service would find that out late, and say it in the words
    of a hub. `models` are those of the flags, None for one that is not given."""
    for flag, model in models.items():
        if model is not None and not model.strip():
            raise CommandError(f"{flag}: names an empty model", WRONG_USE)


def check_there(models: Iterable[tuple[str, str | None]]) -> None:
    """Raises CommandError, for the same reason, if the model of a flag is a path where nothing is."""
    for flag, model in models:
        if model is not None and _is_path(model) and not Path(model).exists():
            kinds = MODEL_KINDS.replace("`", "")
            raise CommandError(f"{flag}: there is no {model!r}; a model is {kinds}", WRONG_USE)


def _is_path(model: str) -> bool:
    """Whether it can be no id of a hub, which is `name` or `owner/name`."""
    return model.startswith((".", "/", "~")) or model.count("/") > 1 or model.endswith(("/", ".gguf"))


def model_to_load(model: str | None, drafter: Drafter, usual: str = BUNDLED) -> str | None:
    """The named model; without a name, the `usual` one if the drafter needs a model."""
    if model is not None:
        return resolve_model(model, "draft")
    return resolve_model(usual, "draft") if drafter in WITH_MODEL else None


def table_to_load(table: str | None, model: str | None, drafter: Drafter) -> str | None:
    """The named table; else that of the model to load; without a model, the bundled one if the drafter needs it."""
    if table is not None:
        return table
    folder = model or (resolve_model(BUNDLED, "draft") if drafter in WITH_TABLE else None)
    found = None if folder is None else Path(folder) / TABLE_NAME
    if found is not None and found.is_file():
        return str(found)
    if drafter in WITH_TABLE:
        raise CommandError(f"--drafter {drafter} needs a table of counts: name it with --table")
    return None
