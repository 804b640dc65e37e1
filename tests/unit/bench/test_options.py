"""What a command line of the bench asks for."""

import argparse

import pytest

from bench.options import BenchOptions, add_options, read_options


def read(*words: str) -> BenchOptions:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return read_options(parser.parse_args(["--draft", "draft", *words]))


def test_each_service_gets_its_own_quantization() -> None:
    options = read("--quantization", "int8", "--draft-quantization", "int4")
    assert options.model_flags("target")["--quantization"] == "int8"
    assert options.model_flags("draft")["--quantization"] == "int4"
    assert options.label == "bundled-int8"


def test_without_quantization_the_services_choose() -> None:
    assert read().model_flags("target")["--generation-config"] == "none", "peers have no such options"
    assert "--quantization" not in {**read().model_flags("target"), **read().model_flags("draft")}


def test_a_result_has_the_name_that_is_given() -> None:
    assert read("--label", "first").label == "first"


@pytest.mark.parametrize("words", [("--pair", "smollm2", "--target", "folder"), ("--target", "model.gguf")])
def test_a_pair_that_converses_is_asked_questions_and_not_compared_with_transformers(words: tuple[str, ...]) -> None:
    options = read(*words)
    assert options.is_chat
    assert not options.has_transformers


def test_the_bundled_pair_continues_files_beside_transformers() -> None:
    assert not read().is_chat
    assert read().has_transformers
    assert not read("--without-transformers").has_transformers


def test_only_the_bundled_pair_is_expanded() -> None:
    with pytest.raises(SystemExit, match="bundled"):
        read("--pair", "smollm2", "--expand", "100M")


def test_paths_stay_out_of_a_description() -> None:
    assert "somewhere" not in str(read("--target", "/somewhere/folder").described())
