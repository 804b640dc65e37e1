"""What proposes, as `serve draft` and `up` ask for it; and what has to be loaded for that."""

from pathlib import Path
from typing import Annotated

import typer

from command.bundled import BUNDLED, resolve_model
from command.failures import CommandError
from command.options import SPECULATION
from specpair.options import Drafter

TABLE_NAME = "tables.safetensors"
"""Where a table is looked for in the folder of a draft model."""

WITH_MODEL = (Drafter.MODEL, Drafter.NGRAM_MODEL)
WITH_TABLE = (Drafter.UNIGRAM, Drafter.BIGRAM)

DraftDrafterOption = Annotated[
    Drafter,
    typer.Option(
        "--drafter",
        envvar="SPECPAIR_DRAFTER",
        help="What proposes where a request does not say: the draft model; n-gram counts or copies (prompt-lookup) of "
        "the text so far; bigram or unigram counts of a corpus; uniform noise; or ngram-model, the model where n-grams "
        "know nothing. All are exact, and all but the two with a model cost next to nothing. A model that is not named "
        "is loaded for those two alone.",
        rich_help_panel=SPECULATION,
    ),
]
TableOption = Annotated[
    str | None,
    typer.Option(
        "--table",
        envvar="SPECPAIR_TABLE",
        help="File of counts for bigram and unigram, as models/train_tables.py writes it, of the tokenizer that draft "
        f"and target share. Default: {TABLE_NAME} in the model's folder; without a model the bundled one.",
        rich_help_panel=SPECULATION,
    ),
]


def model_to_load(model: str | None, drafter: Drafter) -> str | None:
    """The model that was named; none was: the bundled one if the drafter needs one."""
    if model is not None:
        return resolve_model(model, "draft")
    return resolve_model(BUNDLED, "draft") if drafter in WITH_MODEL else None


def table_to_load(table: str | None, model: str | None, drafter: Drafter) -> str | None:
    """The table that was named; none was: that of the model to load, or without one the bundled one if it is needed."""
    if table is not None:
        return table
    folder = model or (resolve_model(BUNDLED, "draft") if drafter in WITH_TABLE else None)
    found = None if folder is None else Path(folder) / TABLE_NAME
    if found is not None and found.is_file():
        return str(found)
    if drafter in WITH_TABLE:
        raise CommandError(f"--drafter {drafter} needs a table of counts: name it by --table")
    return None
