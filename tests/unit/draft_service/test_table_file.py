"""Files of tables: what is written is read, what does not fit is refused by name. And which of them, and which model,
the command loads for a drafter."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models

from command.draft_files import model_to_load, table_to_load
from command.failures import CommandError
from draft_service.config import TABLE_NAME
from draft_service.table_file import FORMAT, read_tables, write_tables
from specpair.errors import ModelRefusedError
from specpair.model_info import TokenizerFiles
from specpair.options import Drafter
from specpair.speculation.tables import Tables, count_corpus

BUNDLED = Path(__file__).parents[3] / "models" / "bundled"
MAX_BUNDLED_BYTES = 1_500_000


def tokenizer(*tokens: str, pretty: bool = False) -> TokenizerFiles:
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    text = Tokenizer(models.WordLevel(vocabulary, unk_token=tokens[0])).to_str(pretty)
    return TokenizerFiles(tokenizer_json=text.encode(), chat_template="", bos_token="", eos_token="")


OWN = tokenizer("a", "b", "c")


@pytest.fixture
def tables() -> Tables:
    return count_corpus(np.array([0, 1, 0, 1, 2, 0, 1]), 3)


@pytest.fixture
def path(tmp_path: Path, tables: Tables) -> Path:
    path = tmp_path / "tables.safetensors"
    write_tables(path, tables, OWN)
    return path


def test_what_is_written_is_read(path: Path, tables: Tables) -> None:
    for files in (OWN, tokenizer("a", "b", "c", pretty=True), None):
        for read, written in zip(read_tables(path, files), tables, strict=True):
            assert read.dtype == written.dtype and (read == written).all()


@pytest.mark.parametrize("other", [("a", "c", "b"), ("a", "b"), ("a", "b", "c", "d"), ("a", "b", "C")])
def test_another_vocabulary_is_refused(path: Path, other: tuple[str, ...]) -> None:
    with pytest.raises(ModelRefusedError, match="made with another tokenizer"):
        read_tables(path, tokenizer(*other))


DAMAGE: dict[str, dict[str, Any]] = {
    "a successor beyond the vocabulary": {"successors": np.array([1, 3], dtype=np.uint16)},
    "offsets that go back": {"offsets": np.array([0, 2, 1, 2], dtype=np.uint32)},
    "offsets beyond the successors": {"offsets": np.array([0, 1, 2, 3], dtype=np.uint32)},
    "too few offsets": {"offsets": np.array([0, 2], dtype=np.uint32)},
    "another size of vocabulary": {"unigram": np.array([1, 2], dtype=np.uint32)},
    "a count too few": {"counts": np.array([3], dtype=np.uint32)},
    "a count of nothing": {"counts": np.array([3, 0], dtype=np.uint32)},
    "nothing at all": {"unigram": np.zeros(3, dtype=np.uint32)},
    "a successor named twice": {
        "offsets": np.array([0, 2, 2, 2], dtype=np.uint32),
        "successors": np.array([1, 1], dtype=np.uint16),
    },
    "successors of what never came": {"unigram": np.array([0, 3, 1], dtype=np.uint32)},
    "a single number": {"unigram": np.array(3, dtype=np.uint32)},
    "floats": {"counts": np.array([3.0, 2.0], dtype=np.float32)},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_tables_are_refused(path: Path, damage: str) -> None:
    good = {
        "unigram": np.array([3, 3, 1], dtype=np.uint32),
        "offsets": np.array([0, 1, 2, 2], dtype=np.uint32),
        "successors": np.array([1, 0], dtype=np.uint16),
        "counts": np.array([3, 2], dtype=np.uint32),
    }
    save_file(good, path, metadata={"format": FORMAT, "vocab_size": "3"})
    assert read_tables(path).counts.tolist() == [3, 2]
    save_file(good | DAMAGE[damage], path, metadata={"format": FORMAT, "vocab_size": "3"})
    with pytest.raises(ModelRefusedError, match="is damaged"):
        read_tables(path)


def test_other_files_are_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelRefusedError, match="cannot be read"):
        read_tables(tmp_path / "missing")
    with pytest.raises(ModelRefusedError, match="cannot be read"):
        read_tables(Path(__file__))
    with pytest.raises(ModelRefusedError, match="cannot be read"):
        read_tables(BUNDLED / "draft" / "model.safetensors")
    save_file(load_file(path), path, metadata={"format": "specpair tables 2"})
    with pytest.raises(ModelRefusedError, match="holds no tables"):
        read_tables(path)


def test_the_bundled_tables_are_of_the_bundled_pair() -> None:
    path = BUNDLED / "draft" / TABLE_NAME
    assert path.stat().st_size < MAX_BUNDLED_BYTES
    for role in ("draft", "target"):
        text = (BUNDLED / role / "tokenizer.json").read_bytes()
        files = TokenizerFiles(tokenizer_json=text, chat_template="", bos_token="", eos_token="")
        assert len(read_tables(path, files).unigram) == 4096
    with pytest.raises(ModelRefusedError, match="another tokenizer"):
        read_tables(path, OWN)


@pytest.mark.parametrize("drafter", list(Drafter))
def test_a_model_is_loaded_where_it_is_named_or_needed(drafter: Drafter) -> None:
    needs = drafter in (Drafter.MODEL, Drafter.NGRAM_MODEL)
    assert model_to_load(None, drafter) == (str(BUNDLED / "draft") if needs else None)
    assert model_to_load("bundled", drafter) == str(BUNDLED / "draft")
    assert model_to_load("some/model", drafter) == "some/model"


def test_a_table_is_loaded_where_it_is_named_or_found_or_needed(tmp_path: Path) -> None:
    bundled = str(BUNDLED / "draft" / TABLE_NAME)
    assert table_to_load("own", None, Drafter.NGRAM) == "own"
    assert table_to_load(None, None, Drafter.NGRAM) is None
    assert table_to_load(None, None, Drafter.BIGRAM) == bundled
    assert table_to_load(None, str(BUNDLED / "draft"), Drafter.MODEL) == bundled
    assert table_to_load(None, str(tmp_path), Drafter.MODEL) is None
    for drafter in (Drafter.UNIGRAM, Drafter.BIGRAM):
        with pytest.raises(CommandError, match=f"{drafter} needs a table of counts: name it with --table"):
            table_to_load(None, str(tmp_path), drafter)
