"""Drawing from common tokens is exact for every rule, and text becomes the target's tokens."""

import pytest
import torch

from draft_service.translation.translation import Translation, make_translation, shared_tokens
from draft_service.translation.vocabulary import Vocabulary
from specpair.model_info import VocabularyMethod
from specpair.options import Rule, SamplingOptions
from tests.tiny_tokenizers import Document, added, byte_fallback, byte_level, files, metaspace_unigram
from tests.unit.specpair.speculation.enumeration import (
    Model,
    enumerate_round,
    joint_distribution,
    random_model,
    total_variation,
)

TARGET = byte_level(["a", "b", "ab"], [["a", "b"]])
DRAFT = byte_level(["c", "b", "ba", "a"], [["b", "a"]])


def translation(
    target: Document, draft: Document, method: VocabularyMethod | None = None, text: str = "ab"
) -> Translation:
    return make_translation(Vocabulary(files(draft), writes=True), files(target), method, text)


def drafts(seed: int) -> tuple[Model, Model]:
    """What the draft draws from, and the same with the share of all its tokens: not renormalised."""
    made = translation(TARGET, DRAFT)
    generator = torch.Generator().manual_seed(seed)
    drawn, sent = [], []
    for level in range(3):
        logits = torch.randn((3**level, 4), generator=generator, dtype=torch.float64)
        rows = made.in_target_ids(logits, 3)
        drawn.append(rows.softmax(-1))
        sent.append((rows - logits.logsumexp(-1, keepdim=True)).exp())
    return drawn, sent


@pytest.mark.parametrize("rule", [Rule.TOKEN, Rule.BLOCK])
@pytest.mark.parametrize("seed", range(4))
def test_common_tokens_give_the_targets_distribution(rule: Rule, seed: int) -> None:
    target = random_model(torch.Generator().manual_seed(100 + seed), 3, 4, 1.0, 0.0)
    drawn, sent = drafts(seed)
    assert not any(level[:, 2].any() for level in drawn)  # "ab" is not the draft's
    assert total_variation(enumerate_round(target, drawn, rule).joint, joint_distribution(target)) < 1e-12
    spoiled = enumerate_round(target, drawn, rule, sent=sent).joint
    assert total_variation(spoiled, joint_distribution(target)) > 0.01  # negative control: not renormalised


def test_columns_of_ids_that_the_target_does_not_have_are_left_out() -> None:
    made = translation(DRAFT, DRAFT)
    rows = made.in_target_ids(torch.arange(4.0)[None], 2)
    assert rows.tolist() == [[0.0, 1.0]]
    assert made.in_target_ids(torch.arange(4.0)[None], 6).tolist() == [[0.0, 1.0, 2.0, 3.0, -torch.inf, -torch.inf]]


def test_text_is_cut_as_the_targets_tokenizer_would() -> None:
    made = translation(TARGET, DRAFT)
    transcript = made.transcript()
    transcript.follow(0, [1])
    assert made.rewritten(transcript, [3, 1]) == [2]  # a, b: one token of the target
    assert made.rewritten(transcript, [2, 3]) == [1, 0, 0]
    assert made.rewritten(transcript, [0, 3]) == [0]  # it has no c
    transcript.follow(1, [0])
    assert made.rewritten(transcript, [1]) == [1]  # the target wrote "a" by itself: "b" is what can follow


def test_an_end_that_both_have_is_written_and_another_special_token_ends_the_text() -> None:
    target = byte_level(["a", "b"], [], [added(2)])
    made = translation(target, byte_level(["b", "a"], [], [added(2, "</s>"), added(3, "<end>"), added(4, "<x>")]))
    transcript = made.transcript()
    transcript.follow(0, [0])
    assert made.rewritten(transcript, [0, 3]) == [1, 2]
    assert made.rewritten(transcript, [0, 4, 0]) == [1]
    assert made.unwritable == [2, 4]


def test_the_first_space_of_a_text_is_no_part_of_it_where_the_tokenizer_puts_it_there() -> None:
    made = translation(byte_fallback(["▁", "a", "▁a"], [["▁", "a"]]), byte_level(["a", "Ġa", "Ġ"], [["Ġ", "a"]]))
    transcript = made.transcript()
    transcript.follow(0, [2, 2])
    assert transcript.own_ids == [0, 1]


def test_the_overlap_chooses_the_method() -> None:
    many, few = byte_level(["a", "b"], []), byte_level(["a", "b", "ab"], [["a", "b"]])
    greedy = SamplingOptions(temperature=0.0)
    for draft, method, text, writes in (
        (few, None, "ab ab b", (True, True)),
        (few, None, "b b b ab", (False, True)),
        (many, None, "ab ab b", (False, False)),
        (many, VocabularyMethod.SLEM, "ab", (True, True)),
        (few, VocabularyMethod.TLI, "ab", (False, False)),
    ):
        made = translation(many, draft, method, text)
        assert (made.writes(SamplingOptions()), made.writes(greedy)) == writes


def test_marked_spaces_and_bytes_are_the_same_tokens() -> None:
    reader = Vocabulary(files(byte_level(["Ġa", "Ã", "a"], [])))
    writer = Vocabulary(files(metaspace_unigram(["<unk>", "a", "▁a"])))
    assert shared_tokens(reader, writer) == {0: 2, 2: 1}
    fallback = Vocabulary(files(byte_fallback(["▁a"], [])))
    assert shared_tokens(reader, fallback) == {0: 0, 1: 1 + 0xC3, 2: 1 + ord("a")}
