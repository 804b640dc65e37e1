"""What is taken from `generation_config.json`, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import GenerationConfig

from specpair.errors import ModelRefusedError
from specpair.model_info import NO_DEFAULTS, SamplingDefaults
from specpair.models.sampling_defaults import FILE, MAX_FILE_BYTES, read_sampling_defaults

WHOLE = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.05}


def written(folder: Path, **entries: Any) -> str:
    (folder / FILE).write_text(json.dumps(entries))
    return str(folder)


def test_the_options_that_the_file_sets_are_taken_and_no_others(tmp_path: Path) -> None:
    assert read_sampling_defaults(written(tmp_path, **WHOLE)) == SamplingDefaults(**WHOLE)
    others = {"eos_token_id": [1, 2], "max_new_tokens": 2048, "do_sample": True, "top_p": None}
    assert read_sampling_defaults(written(tmp_path, **others)) == NO_DEFAULTS
    assert read_sampling_defaults(written(tmp_path, temperature=1)).given == {"temperature": 1.0}
    assert read_sampling_defaults(written(tmp_path, temperature=0, top_k=0)).given == {"temperature": 0.0, "top_k": 0}


def test_a_file_that_transformers_wrote_is_read(tmp_path: Path) -> None:
    GenerationConfig(do_sample=True, temperature=0.7, top_k=64).save_pretrained(tmp_path)
    assert read_sampling_defaults(str(tmp_path)) == SamplingDefaults(temperature=0.7, top_k=64)


def test_minus_one_keeps_all_tokens(tmp_path: Path) -> None:
    assert read_sampling_defaults(written(tmp_path, top_k=-1)) == SamplingDefaults(top_k=0)


def test_what_transformers_would_not_use_without_sampling_is_left_out(tmp_path: Path) -> None:
    folder = written(tmp_path, **WHOLE, do_sample=False)
    assert read_sampling_defaults(folder) == SamplingDefaults(repetition_penalty=1.05)


def test_there_are_none_without_the_file_and_beside_a_gguf_file(tmp_path: Path) -> None:
    assert read_sampling_defaults(str(tmp_path)) == NO_DEFAULTS
    written(tmp_path, **WHOLE)
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert read_sampling_defaults(str(tmp_path / "model.gguf")) == NO_DEFAULTS


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"temperature": -0.1}, "temperature: is -0.1; it must be between 0.0 and 100.0"),
        ({"temperature": 10**400}, "temperature: is inf; it must be between"),
        ({"temperature": "0.6"}, "temperature is not a number"),
        ({"temperature": True}, "temperature is not a number"),
        ({"top_p": 0}, "top_p: is 0; it must be above 0"),
        ({"top_p": 1e-46}, "top_p: is 0; it must be above 0"),  # as 32 bits have it
        ({"repetition_penalty": 0.01}, "repetition_penalty: is 0.00999"),
        ({"top_p": float("nan")}, "top_p: is nan"),
        ({"top_k": -2}, "top_k: is -2; it must be between 0"),
        ({"top_k": 20.5}, "top_k is not a whole number"),
        ({"min_p": 2}, "min_p: is 2.0; it must be between 0.0 and 1.0"),
        ({"repetition_penalty": 0}, "repetition_penalty: is 0.0; it must be between 0.01 and 100.0"),
    ],
)
def test_a_value_that_no_request_could_have_is_refused_with_file_and_field(
    tmp_path: Path, entries: dict[str, Any], words: str
) -> None:
    with pytest.raises(ModelRefusedError) as caught:
        read_sampling_defaults(written(tmp_path, **entries))
    message = caught.value.message
    assert message.startswith(f"{tmp_path / FILE}: {words}")
    assert message.endswith("with --generation-config none the file is not used") and "sampling." not in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b" " * (MAX_FILE_BYTES + 1), "has more than 1048576 bytes"),
    ],
    ids=["json", "bytes", "deep", "list", "large"],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(ModelRefusedError, match=words):
        read_sampling_defaults(str(tmp_path))
