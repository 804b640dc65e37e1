"""The generated task of the tiny T5 pair, its tokenizer, and a training of a few steps."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from models.t5.task import LEXICON, NOUNS, VERBS, sentences, vocabulary
from models.t5.tokenizer import END_OF_TEXT, PAD, UNKNOWN, make_tokenizer
from models.t5.training import RECIPES, train

T5 = Path(__file__).parents[3] / "models" / "t5"
MOST_BYTES = 2_000_000


def test_sentences_are_the_same_for_a_seed_and_have_their_words_translated() -> None:
    some = list(islice(sentences(3), 200))
    assert some == list(islice(sentences(3), 200)) != list(islice(sentences(4), 200))
    tokens = set(vocabulary())
    for source, translation in some:
        assert tokens.issuperset([*source, *translation])
        joined = " ".join(translation)
        for word in source:
            if word in NOUNS:
                assert " ".join(LEXICON[word][0]) in joined
            if word in VERBS:
                assert any(joined.endswith(f"{' '.join(form)} .") for form in LEXICON[word])


def test_the_tokenizer_keeps_words_and_joins_syllables() -> None:
    tokenizer = make_tokenizer()
    assert tokenizer.convert_tokens_to_ids([PAD, END_OF_TEXT, UNKNOWN]) == [0, 1, 2]
    for source, translation in islice(sentences(5), 20):
        ids = tokenizer(" ".join(source)).input_ids
        assert tokenizer.convert_ids_to_tokens(ids) == [*source, END_OF_TEXT]
        text = tokenizer.decode(tokenizer.convert_tokens_to_ids(translation))
        assert text == " ".join(translation).replace(" ##", "").replace(" .", ".")


@pytest.mark.parametrize("name", RECIPES)
def test_the_bundled_models_are_small_and_have_the_tokenizer(name: str) -> None:
    assert (T5 / name / "model.safetensors").stat().st_size < MOST_BYTES
    assert AutoTokenizer.from_pretrained(T5 / name).get_vocab() == make_tokenizer().get_vocab()


def test_training_learns(tmp_path: Path) -> None:
    losses = [train(replace(RECIPES["draft"], batch_size=16), tmp_path / str(steps), steps) for steps in (1, 25)]
    assert losses[1] < losses[0] - 0.5
    assert (tmp_path / "25" / "model.safetensors").exists()
