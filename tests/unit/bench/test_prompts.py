"""Prompts of `bench`."""

import pytest

from bench.prompts import token_prompts
from specpair.named_models import BUNDLED, model_folder

TARGET = model_folder(BUNDLED, "target")


@pytest.mark.parametrize("length", [128, 1024])
def test_prompts_have_the_length_that_is_asked_for(length: int) -> None:
    prompts = token_prompts(TARGET, length)
    assert len(prompts) >= 7, "a Python without its own tests has few files"
    assert {len(prompt) for prompt in prompts} == {length}


def test_a_long_prompt_begins_as_a_short_one() -> None:
    assert token_prompts(TARGET, 1024, 1)[0][:128] in token_prompts(TARGET, 128)
