"""A model folder may bring Python code along: it is never run."""

import json
from pathlib import Path

import pytest
from transformers import AutoConfig

from specpair.errors import ModelRefusedError
from specpair.models.loading import load
from tests.services import engine_config
from tests.tiny_models import make_model

CODE = """
from pathlib import Path
Path({marker!r}).touch()
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

class Config(LlamaConfig):
    model_type = "unheard_of"

class Model(LlamaForCausalLM):
    config_class = Config

class Tokenizer(PreTrainedTokenizerFast):
    pass
"""


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that is there as soon as the code of the folder has run."""
    return tmp_path / "ran"


@pytest.fixture
def folder(tmp_path: Path, marker: Path) -> Path:
    """A model whose configuration points to code beside it, for the model and for a tokenizer."""
    folder = make_model(tmp_path / "model")
    (folder / "code.py").write_text(CODE.format(marker=str(marker)))
    names = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}
    change(folder / "config.json", auto_map=names)
    tokenizer = {"tokenizer_class": "Tokenizer", "auto_map": {"AutoTokenizer": [None, "code.Tokenizer"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return folder


def change(file: Path, **values: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def test_the_code_would_run_if_it_were_trusted(folder: Path, marker: Path) -> None:
    """So that the tests below mean something."""
    change(folder / "config.json", model_type="unheard_of")
    AutoConfig.from_pretrained(folder, trust_remote_code=True)
    assert marker.exists()


def test_a_known_architecture_is_served_without_the_code(folder: Path, marker: Path) -> None:
    model = load(engine_config(folder)).model
    assert type(model).__name__ == "LlamaForCausalLM" and type(model).__module__.startswith("transformers.")
    assert not marker.exists()


def test_an_architecture_of_its_own_is_refused(folder: Path, marker: Path) -> None:
    change(folder / "config.json", model_type="unheard_of")
    with pytest.raises(ModelRefusedError):
        load(engine_config(folder))
    assert not marker.exists()
