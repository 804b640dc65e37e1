"""What a compiled head draws in one call has the tokens and distributions of what it draws step by step."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from specpair.caches.holding import Segment
from specpair.models.batch import Batch
from specpair.models.fusible import computes_bfloat16
from specpair.models.load_runner import load_runner
from specpair.models.native_chain_rows import refusal_of
from specpair.models.native_headed_runner import NativeHeadedRunner
from specpair.native.library import native_library
from specpair.options import Rule, SamplingOptions, SequenceOptions
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence
from specpair.whole_drafting import chain_of, needs_steps, take_all
from target_service.own_proposal import OwnDraft
from target_service.self_drafting import draw_by_steps
from tests.services import engine_config
from tests.tiny_heads import OUTPUTS, make_head
from tests.tiny_models import make_model

pytestmark = pytest.mark.skipif(native_library() is None, reason="needs a C compiler")

TEXTS = [[5, 17, 3, 44, 8, 21, 60, 2], [33, 12, 31, 7], [9, 1, 2, 3, 4, 5, 6, 11, 12]]
COUNTS = [6, 1, 4]
HEADS: dict[str, dict[str, Any]] = {"borrowing": {}, "own vocabulary": {"outputs": OUTPUTS}}


def load(tmp_path: Path, kind: str, dtype: str = "float32") -> NativeHeadedRunner:
    target, head = make_model(tmp_path / "target"), make_head(tmp_path / "head", **HEADS[kind])
    _, runner = load_runner(engine_config(target, head=str(head), runner="native", dtype=dtype))
    assert isinstance(runner, NativeHeadedRunner)
    return runner


def fed(runner: NativeHeadedRunner, text: list[int]) -> Any:
    holding = runner.cache.open([])
    runner.cache.append(holding, len(text))
    runner.forward(Batch.of_chains([Segment(holding, 0, len(text))], text, [1]))
    return holding


def drafts_of(options: SequenceOptions, min_confidence: float = 0.0) -> list[OwnDraft]:
    made = []
    for text, count in zip(TEXTS, COUNTS, strict=True):
        held: Any = HeldSequence(options, None, 2, Sequence(text), len(text))
        made.append(OwnDraft.after(held, text, 3, count))
        made[-1].min_confidence = min_confidence
    return made


def can_be_whole(draft: OwnDraft) -> bool:
    return needs_steps(draft) is None and refusal_of(draft.options) is None


def draw_whole(runner: NativeHeadedRunner, holdings: list[Any], places: list[Any], drafts: list[OwnDraft]) -> None:
    run = runner.begin(holdings, places, max(draft.count for draft in drafts))
    assert all(can_be_whole(draft) for draft in drafts)
    chains = [chain_of(draft, holding, run.vocab_size) for draft, holding in zip(drafts, holdings, strict=True)]
    for draft, drawn in zip(drafts, run.draw([draft.sequence.tokens[-1] for draft in drafts], chains), strict=True):
        take_all(draft, drawn)


def draw_both(
    runner: NativeHeadedRunner, holdings: list[Any], places: list[Any], drafts: list[OwnDraft], others: list[OwnDraft]
) -> None:
    """Draws the drafts whole and the others, which are equal, step by step, and compares them."""
    draw_whole(runner, holdings, places, drafts)
    draw_by_steps(runner.begin(holdings, places, max(COUNTS)), others)
    for whole, stepped in zip(drafts, others, strict=True):
        assert whole.tokens == stepped.tokens
        assert whole.done and stepped.done and whole.error is stepped.error is None
        assert len(whole.counts) == len(stepped.counts)
        for own, other in zip(whole.counts, stepped.counts, strict=True):
            assert np.array_equal(own.token_ids, other.token_ids) and np.array_equal(own.counts, other.counts)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("rule", [Rule.TOKEN, Rule.COUPLED])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_one_call_draws_what_steps_draw(temperature: float, rule: Rule, kind: str, dtype: str, tmp_path: Path) -> None:
    if dtype == "bfloat16" and not computes_bfloat16(torch.device("cpu")):
        pytest.skip("needs units for bf16")
    options = SequenceOptions(sampling=SamplingOptions(temperature=temperature, seed=7), rule=rule)
    runner = load(tmp_path, kind, dtype)
    holdings, places = [fed(runner, text[:-1]) for text in TEXTS], [range(len(text) - 1) for text in TEXTS]
    drafts = drafts_of(options)
    draw_both(runner, holdings, places, drafts, drafts_of(options))
    assert [len(draft.tokens) for draft in drafts] == COUNTS


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("kind", HEADS)
def test_a_proposal_ends_where_its_draft_is_unsure(kind: str, temperature: float, tmp_path: Path) -> None:
    runner = load(tmp_path, kind)
    options = SequenceOptions(sampling=SamplingOptions(temperature=temperature, seed=2))
    holdings, places = [fed(runner, text[:-1]) for text in TEXTS], [range(len(text) - 1) for text in TEXTS]
    for least in (1e-9, 1e-4, 0.9):
        drafts = drafts_of(options, least)
        draw_both(runner, holdings, places, drafts, drafts_of(options, least))
        if least == 0.9:
            assert [len(draft.tokens) for draft in drafts] == [1, 1, 1]


def test_a_proposal_after_a_path_of_a_tree(tmp_path: Path) -> None:
    """The path is not moved together yet; another sequence has none."""
    runner = load(tmp_path, "own vocabulary")
    holdings = [fed(runner, text[:-1]) for text in TEXTS]
    length = len(TEXTS[0]) - 4
    runner.cache.truncate_to(holdings[0], length)
    runner.cache.append(holdings[0], 5)
    fifth, sixth, seventh = TEXTS[0][length : length + 3]
    nodes, parents = [fifth, 1, sixth, 4, seventh], [None, 0, 0, 1, 2]
    runner.forward(Batch.of_trees([Segment(holdings[0], length, 5)], nodes, [5], parents))
    places: list[Any] = [[*range(length), length, length + 2, length + 4], *(range(len(t) - 1) for t in TEXTS[1:])]
    options = SequenceOptions(sampling=SamplingOptions(temperature=0.0))
    drafts = drafts_of(options)
    draw_both(runner, holdings, places, drafts, drafts_of(options))
    runner.cache.keep_path(holdings[0], length, [0, 2, 4])
    ordered = drafts_of(options)
    draw_whole(runner, holdings, [range(len(text) - 1) for text in TEXTS], ordered)
    assert [draft.tokens for draft in drafts] == [draft.tokens for draft in ordered]


def test_a_row_that_is_not_finite_ends_its_proposal_alone(tmp_path: Path) -> None:
    runner = load(tmp_path, "borrowing")
    holdings, places = [fed(runner, text[:-1]) for text in TEXTS], [range(len(text) - 1) for text in TEXTS]
    options = SequenceOptions(sampling=SamplingOptions(temperature=0.0))
    expected = drafts_of(options)
    draw_whole(runner, holdings, places, expected)
    keys = holdings[0].storage.stacks
    stack = next(stack for stack in keys if runner.joined in stack.layers)
    stack.keys[stack.layers.index(runner.joined), 0, len(TEXTS[0]) - 2] = torch.nan
    drafts = drafts_of(options)
    draw_whole(runner, holdings, places, drafts)
    assert not drafts[0].tokens and drafts[0].error is not None
    assert [draft.tokens for draft in drafts[1:]] == [draft.tokens for draft in expected[1:]]


def test_what_needs_steps_is_not_drawn_whole() -> None:
    greedy = SamplingOptions(temperature=0.0)
    held: Any = HeldSequence(SequenceOptions(sampling=greedy), None, 2, Sequence([1, 2, 3]), 3)
    assert can_be_whole(OwnDraft.after(held, [1, 2, 3], 1, 2))
    for sampling in (
        replace(greedy, banned_token_ids=(3,)),
        SamplingOptions(temperature=1.0, top_k=4),
        SamplingOptions(temperature=1.0, top_p=0.9),
    ):
        held = HeldSequence(SequenceOptions(sampling=sampling), None, 2, Sequence([1, 2, 3]), 3)
        assert not can_be_whole(OwnDraft.after(held, [1, 2, 3], 1, 2))
