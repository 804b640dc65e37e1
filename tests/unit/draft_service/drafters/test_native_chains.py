"""Proposals that the compiled runner draws in one call are the bits of those that are drawn token by token."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from draft_service.drafters.model import ProposeWork
from specpair.errors import NotFiniteError
from specpair.models.chain_miss import ChainMiss
from specpair.models.load_runner import load_runner
from specpair.models.native_runner import NativeRunner
from specpair.native.library import native_library
from specpair.options import Encoding, Rule, SamplingOptions, SequenceOptions
from tests.services import engine_config
from tests.tiny_models import make_model
from tests.unit.draft_service.drafters.test_chains import (
    KINDS,
    SAMPLED,
    VOCABULARY,
    in_rounds,
    proposal,
    run,
    work_of,
    works_of,
)
from tests.unit.specpair.models.test_output_tokens import reduced

pytestmark = pytest.mark.skipif(native_library() is None, reason="needs a C compiler")
DRAWN = ["block", "token", "small vocabulary", "coupled", "greedy", "greedy small vocabulary", "greedy coupled"]
COMPANIES = {"block": ["block"], "greedy": ["greedy"], "coupled": ["coupled"], "drawn": DRAWN, "all": list(KINDS)}
LISTED = [*range(0, 20, 3), *range(22, 64, 2)]
HEADS: dict[str, list[int] | None] = {"all tokens": None, "some tokens": LISTED}
needs_bytes = pytest.mark.skipif(
    native_library() is None or not native_library().specpair_multiplies_bytes(),  # type: ignore[union-attr]
    reason="no products of bytes on this processor",
)
WAYS: list[Any] = ["", pytest.param("int8", marks=needs_bytes), pytest.param("int4", marks=needs_bytes)]


def load(
    folder: Path, listed: list[int] | None = None, quantization: str = "", vocab_size: int = VOCABULARY, **changes: Any
) -> NativeRunner:
    """A tiny model whose rows are spread enough for tokens to differ."""
    spread: dict[str, Any] = {"vocab_size": vocab_size, "initializer_range": 0.3}
    path = make_model(folder, **spread) if listed is None else reduced(folder, listed, **spread)
    config = engine_config(path, **({"quantization": quantization} if quantization else {}), **changes)
    _, runner = load_runner(config)
    assert isinstance(runner, NativeRunner)
    return runner


def cached(work: ProposeWork, length: int) -> list[Tensor]:
    """Keys and values of the first tokens, which the cache has for sure."""
    sequence = work.sequence
    assert sequence.holding is not None and sequence.holding.length == sequence.valid_length >= length
    stack = sequence.holding.storage.stacks[0]
    return [part[:, :, :length] for part in (stack.keys, stack.values)]


def check_same(actual: list[ProposeWork], expected: list[ProposeWork]) -> None:
    assert [proposal(work) for work in actual] == [proposal(work) for work in expected]
    assert [work.confidence for work in actual] == [work.confidence for work in expected]
    for own, other in zip(actual, expected, strict=True):
        assert own.sequence.tokens == other.sequence.tokens
        fed = len(own.sequence.tokens) - 1
        assert own.sequence.valid_length == fed
        assert all(torch.equal(*pair) for pair in zip(cached(own, fed), cached(other, fed), strict=True))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("quantization", WAYS)
@pytest.mark.parametrize("listed", HEADS.values(), ids=HEADS)
def test_a_proposal_is_the_same_bits(listed: Any, quantization: str, threads: int, tmp_path: Path) -> None:
    """Alone and in company, which ends at other lengths."""
    before = torch.get_num_threads()
    try:
        runner = load(tmp_path, listed, quantization, threads=threads)
        for kinds in (*([kind] for kind in DRAWN), DRAWN, ["block"] * 3):
            counts = [3 + 2 * place % 7 for place in range(len(kinds))]
            actual, expected = works_of(kinds, counts), works_of(kinds, counts)
            run(runner, actual, True)
            run(runner, expected, False)
            check_same(actual, expected)
            assert all(work.tokens and set(work.tokens) <= set(listed or range(64)) for work in actual)
    finally:
        torch.set_num_threads(before)
    assert not runner.chain_misses


@pytest.mark.parametrize(
    "kinds",
    [["block"], ["greedy"], ["coupled"], DRAWN, list(KINDS)],
    ids=["block", "greedy", "coupled", "drawn", "all"],
)
@pytest.mark.parametrize("listed", HEADS.values(), ids=HEADS)
def test_a_model_proposes_the_same_over_rounds(listed: Any, kinds: list[str], tmp_path: Path) -> None:
    """With rollbacks, and beside proposals that are drawn token by token."""
    assert in_rounds(load(tmp_path / "a", listed), True, kinds) == in_rounds(load(tmp_path / "b", listed), False, kinds)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("listed", HEADS.values(), ids=HEADS)
def test_shared_noise_is_that_of_the_tokens(listed: Any, temperature: float, tmp_path: Path) -> None:
    """Whatever the head lists, and whatever the target does not have."""
    runner = load(tmp_path, listed)
    for seed in range(6):
        sampling = SamplingOptions(temperature=temperature, seed=seed)
        options = SequenceOptions(sampling=sampling, rule=Rule.COUPLED, vocab_size=40 if seed % 2 else None)
        actual, expected = ([work_of(options, 9, [3, seed, place]) for place in range(3)] for _ in range(2))
        run(runner, actual, True)
        run(runner, expected, False)
        check_same(actual, expected)
    assert not runner.chain_misses


@pytest.mark.parametrize("listed", [[*range(0, 300, 7), *range(6100, 6400, 3)], [2047, 2048, 4095, 4096, 6399]])
def test_listed_tokens_may_lie_far_apart(listed: list[int], tmp_path: Path) -> None:
    """Their noise is made in parts, of which some have none of them."""
    runner = load(tmp_path, listed, vocab_size=6400)
    for seed in range(4):
        options = SequenceOptions(sampling=SamplingOptions(temperature=1.0, seed=seed), rule=Rule.COUPLED)
        actual, expected = ([work_of(options, 9, [3, seed, place]) for place in range(3)] for _ in range(2))
        run(runner, actual, True)
        run(runner, expected, False)
        check_same(actual, expected)
        assert all(set(work.tokens) <= set(listed) for work in actual)


@pytest.mark.parametrize("kind", ["block", "coupled", "greedy"])
def test_a_head_without_a_token_of_the_target_proposes_nothing(kind: str, tmp_path: Path) -> None:
    runner = load(tmp_path, LISTED[3:])
    options = replace(KINDS[kind], vocab_size=LISTED[3])
    actual, expected = [work_of(options, 3, [3, 1, 4])], [work_of(options, 3, [3, 1, 4])]
    run(runner, actual, True)
    run(runner, expected, False)
    assert not actual[0].tokens and type(actual[0].error) is type(expected[0].error) is NotFiniteError


@pytest.mark.parametrize("least", [0.9, 0.2, 1e-3])
@pytest.mark.parametrize("listed", HEADS.values(), ids=HEADS)
def test_a_proposal_ends_where_the_draft_is_unsure(listed: Any, least: float, tmp_path: Path) -> None:
    """And no pass feeds what comes after."""
    runner = load(tmp_path, listed)
    actual, expected = works_of(DRAWN, [8] * len(DRAWN), least), works_of(DRAWN, [8] * len(DRAWN), least)
    run(runner, actual, True)
    run(runner, expected, False)
    check_same(actual, expected)
    assert any(len(work.tokens) < 8 for work in actual)


def test_no_pass_feeds_what_comes_after_a_token_that_is_unsure(tmp_path: Path) -> None:
    runner = load(tmp_path)
    (work,) = works_of(["block"], [8], 1.0)
    work.sequence.holding = holding = runner.cache.open([])
    runner.cache.append(holding, 12)
    runner.cache.truncate_to(holding, 0)
    keys = holding.storage.stacks[0].keys.fill_(7.0)
    run(runner, [work], True)
    assert len(work.tokens) == 1 and holding.storage.stacks[0].keys is keys
    assert (keys[:, :, :3] != 7.0).all() and (keys[:, :, 3:] == 7.0).all()


@pytest.mark.parametrize("kind", ["block", "greedy", "coupled"])
@pytest.mark.parametrize("listed", HEADS.values(), ids=HEADS)
def test_a_row_that_is_not_finite_ends_its_proposal_and_no_other(listed: Any, kind: str, tmp_path: Path) -> None:
    runner = load(tmp_path, listed)
    first = works_of([kind], [6])
    run(runner, first, True)
    tokens = first[0].tokens
    place = next(i for i, token in enumerate(tokens) if i and token not in {3, 1, 4, 5, *tokens[:i]})  # no prompt
    runner._native.embedding[tokens[place]] = torch.nan
    actual, expected = works_of([kind, "token"], [6, 6]), works_of([kind, "token"], [6, 6])
    run(runner, actual, True)
    run(runner, expected, False)
    check_same(actual, expected)
    assert actual[0].tokens == tokens[: place + 1] and actual[0].error is None


@pytest.mark.parametrize("kind", ["block", "greedy", "coupled"])
def test_without_a_first_token_the_proposal_fails(kind: str, tmp_path: Path) -> None:
    runner = load(tmp_path)
    runner._native.embedding[4] = torch.nan
    works = works_of([kind, kind], [4, 4])
    run(runner, works, True)
    assert proposal(works[0])[2] is NotFiniteError and len(works[1].tokens) == 4


def test_there_is_one_call_for_a_proposal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = load(tmp_path)
    passes: list[int] = []
    forward = runner.forward
    monkeypatch.setattr(runner, "forward", lambda batch: passes.append(len(batch.rows)) or forward(batch))
    _, statistics = run(runner, works_of(["block", "greedy"], [5, 3]), True)
    assert passes == [2] and statistics.decode_tokens == 8


MISSES: dict[ChainMiss, dict[str, Any]] = {
    ChainMiss.CUTS: {"options": SequenceOptions(sampling=replace(SAMPLED, top_p=0.7))},
    ChainMiss.ADJUSTMENTS: {"options": SequenceOptions(sampling=replace(SAMPLED, banned_token_ids=(4,)))},
    ChainMiss.DENSE: {"options": SequenceOptions(sampling=SAMPLED, encoding=Encoding.DENSE)},
    ChainMiss.LENGTH: {"count": 34},
}


@pytest.mark.parametrize("miss", MISSES)
def test_what_is_not_drawn_whole_is_drawn_token_by_token(miss: ChainMiss, tmp_path: Path) -> None:
    runner = load(tmp_path)
    values: dict[str, Any] = {"options": KINDS["block"], "count": 4, **MISSES[miss]}
    works = [work_of(values["options"], values["count"], [1, 2, 3]), work_of(KINDS["greedy"], 4, [5, 6])]
    run(runner, works, True)
    assert runner.chain_misses == Counter({miss: 1}), "counted once, not in each step"
    assert [len(work.tokens) for work in works] == [values["count"], 4]


def test_every_cut_is_one(tmp_path: Path) -> None:
    chains = load(tmp_path).chains
    assert chains is not None
    for cut in ({"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.1}):
        options: Any = SequenceOptions(sampling=replace(SAMPLED, **cut))
        assert chains.refusal(options) is ChainMiss.CUTS
    assert chains.refusal(KINDS["block"]) is None
