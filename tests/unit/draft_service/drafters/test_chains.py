"""Proposals that the device draws whole are those that the host draws token by token from the same logits: tokens,
counts and where they end. On CPU tensors, with the stand-in for graphs."""

import random
from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from draft_service.drafters.chains import ChainDrafter
from draft_service.drafters.model import ProposeWork, advance
from specpair.caches.cache import LayerShape
from specpair.caches.holding import Holding
from specpair.caches.paged_cache import PagedCache
from specpair.drafting import draw_next
from specpair.engine.statistics import EngineStatistics
from specpair.engine.turns import Turns
from specpair.errors import NotFiniteError
from specpair.models.capture import Capture, EagerCapture
from specpair.models.captured_chain import CapturedChains
from specpair.models.captured_rows import RowBuffers
from specpair.models.chain_miss import ChainMiss
from specpair.models.chain_row import ChainKind
from specpair.models.stop_flag import StopFlag
from specpair.options import Encoding, Rule, SamplingOptions, SequenceOptions
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence
from specpair.speculation.count_row import TOTAL_LOG2
from specpair.whole_drafting import chain_of, holding_of, take_all
from tests.silent_device import DEVICE, SilentDevice
from tests.tiny_models import make_model
from tests.unit.specpair.models.test_captured_runner import load

VOCABULARY = 64
SAMPLED = SamplingOptions(temperature=0.8, seed=2**64 - 5)
GREEDY = SamplingOptions(temperature=0.0)
KINDS = {
    "block": SequenceOptions(sampling=SAMPLED),
    "token": SequenceOptions(sampling=SamplingOptions(seed=3), rule=Rule.TOKEN),
    "top-p": SequenceOptions(sampling=replace(SAMPLED, top_p=0.7)),
    "top-k": SequenceOptions(sampling=replace(SAMPLED, top_k=5)),
    "min-p": SequenceOptions(sampling=replace(SAMPLED, min_p=0.2)),
    "all cuts": SequenceOptions(sampling=replace(SAMPLED, top_p=0.9, top_k=9, min_p=0.01)),
    "small vocabulary": SequenceOptions(sampling=SAMPLED, vocab_size=40),
    "coupled": SequenceOptions(sampling=SAMPLED, rule=Rule.COUPLED),
    "coupled top-p": SequenceOptions(sampling=replace(SAMPLED, top_p=0.7), rule=Rule.COUPLED),
    "greedy": SequenceOptions(sampling=GREEDY),
    "greedy small vocabulary": SequenceOptions(sampling=GREEDY, vocab_size=40),
    "greedy coupled": SequenceOptions(sampling=GREEDY, rule=Rule.COUPLED),
}
COMPANIES = [*([kind] for kind in KINDS), list(KINDS), ["greedy"] * 3, ["coupled", "greedy coupled"]]


class TableChains:
    """Chains of a model whose logits depend on the last token alone, so that they are the same bits in any company."""

    def __init__(self, table: Tensor, capture: Capture | None = None):
        self.table = table
        device = table.device
        self.cache = PagedCache({0: LayerShape(1, 2, 2)}, 40, 4, torch.float32, device, has_spare_block=True)
        self.buffers = RowBuffers(32, 10, self.cache)
        self.chains = CapturedChains(
            self.forward, lambda rows, keys: 0, self.buffers, self.cache, capture or EagerCapture()
        )

    def forward(self, row_count: int, key_count: int) -> Tensor:
        return self.table.index_select(0, self.buffers.first(row_count).token_ids)


def random_table(seed: int = 0) -> Tensor:
    return 2 * torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(seed))


def work_of(options: SequenceOptions, count: int, prompt: list[int], min_confidence: float = 0.0) -> ProposeWork:
    held: Any = HeldSequence(options, None, len(prompt), Sequence(list(prompt)), len(prompt))
    work = ProposeWork(sequence=held.cached, row_count=1, held=held, step=7, count=count, min_confidence=min_confidence)
    work.future = Future()  # type: ignore[assignment]
    return work


def works_of(kinds: list[str], counts: list[int], min_confidence: float = 0.0) -> list[ProposeWork]:
    pairs = zip(kinds, counts, strict=False)
    return [work_of(KINDS[kind], count, [3, 1, 4 + place], min_confidence) for place, (kind, count) in enumerate(pairs)]


def by_host(works: list[ProposeWork], table: Tensor) -> None:
    while going := [work for work in works if not work.done]:
        draw_next(going, table[[work.sequence.tokens[-1] for work in going]])


def by_device(works: list[ProposeWork], model: TableChains) -> None:
    for work in works:
        work.sequence.holding = model.cache.open([])
        model.cache.append(work.sequence.holding, len(work.sequence.tokens) + work.count - 1)
    chains = [chain_of(work, holding_of(work.sequence), VOCABULARY) for work in works]
    first = model.table[[work.sequence.tokens[-1] for work in works]]
    for work, drawn in zip(works, model.chains.draw(first, chains), strict=True):
        take_all(work, drawn)


def proposal(work: ProposeWork) -> tuple[list[int], list[dict[int, int]], type | None]:
    assert work.done
    counts = [dict(zip(map(int, row.token_ids), map(int, row.counts), strict=True)) for row in work.counts]
    return work.tokens, counts, work.error and type(work.error)


@pytest.mark.parametrize("kinds", COMPANIES, ids=lambda kinds: kinds[0] if len(kinds) == 1 else f"{len(kinds)}")
@pytest.mark.parametrize("min_confidence", [0.0, 0.05])
def test_a_proposal_is_the_same_bits(kinds: list[str], min_confidence: float) -> None:
    model = TableChains(random_table())
    for seed in range(3):
        counts = [random.Random(seed + place).randint(1, 9) for place in range(len(kinds))]
        expected, actual = works_of(kinds, counts, min_confidence), works_of(kinds, counts, min_confidence)
        by_host(expected, model.table)
        by_device(actual, model)
        assert [proposal(work) for work in actual] == [proposal(work) for work in expected]
        assert [work.confidence for work in actual] == [work.confidence for work in expected]
        for work in actual:
            model.cache.free(work.sequence.holding)  # type: ignore[arg-type]


def test_a_row_that_is_not_finite_ends_its_proposal_and_no_other() -> None:
    table = random_table()
    table[:, 3] = table.amax(1) + 9  # all go to token 3
    works = works_of(["block", "coupled", "greedy"], [4, 4, 4])
    table[3, 5] = torch.nan
    bad = table.clone()
    bad[[work.sequence.tokens[-1] for work in works][:1]] = torch.nan
    for tables, errors in ((table, [None] * 3), (bad, [NotFiniteError, None, None])):
        expected, actual = (
            works_of(["block", "coupled", "greedy"], [4] * 3),
            works_of(["block", "coupled", "greedy"], [4] * 3),
        )
        by_host(expected, tables)
        by_device(actual, TableChains(tables))
        assert [proposal(work) for work in actual] == [proposal(work) for work in expected]
        assert [proposal(work)[2] for work in actual] == errors


def test_padding_and_complete_rows_write_to_the_spare_block_alone() -> None:
    model = TableChains(random_table())
    slots: list[list[int]] = []

    def noting(row_count: int, key_count: int) -> Tensor:
        slots.append(model.buffers.first(row_count).slots.tolist())
        return model.forward(row_count, key_count)

    model.chains._forward = noting
    works = works_of(["greedy"] * 7, [1, 2, 3, 4, 4, 4, 4])
    by_device(works, model)
    fed = slots[-3:]  # those before it ran while it was captured
    spare = model.buffers.spare_slot
    for place, work in enumerate(works):
        holding = work.sequence.holding
        assert holding is not None
        own = model.cache.slots(holding, 3, 3 + work.count - 1).tolist()
        assert [step[place] for step in fed] == own + [spare] * (3 - len(own))
    assert all(step[7] == spare for step in fed) and all(set(step) == {spare} for step in slots[:-3])


def started(
    runner: Any, works: list[ProposeWork], uses_chains: bool, stop: StopFlag | None = None
) -> tuple[Turns, EngineStatistics]:
    """The turns of an engine that has these works."""
    statistics, stop = EngineStatistics(), stop or StopFlag()
    drafter = ChainDrafter(runner.cache, runner.chains, runner.chain_misses, statistics, stop)

    def advancing(some: list[Any], logits: Tensor) -> None:
        if uses_chains:
            some, logits = drafter.advance(some, logits)
        if some:
            advance(some, logits)

    turns = Turns(runner, advancing, statistics, lambda call: None, token_budget=64, short=18, stop=stop)
    turns.add([*works])
    return turns, statistics


@torch.inference_mode()
def run(
    runner: Any, works: list[ProposeWork], uses_chains: bool, stop: StopFlag | None = None
) -> tuple[Turns, EngineStatistics]:
    turns, statistics = started(runner, works, uses_chains, stop)
    while turns.works:
        turns.turn()
    return turns, statistics


def in_rounds(runner: Any, uses_chains: bool, kinds: list[str]) -> list[Any]:
    """Proposals of several rounds, with what a target may keep of each."""
    draw, found = random.Random(5), []
    works = works_of(kinds, [draw.randint(1, 8) for _ in kinds])
    for step in range(5):
        run(runner, works, uses_chains)
        found.append([(proposal(work), work.sequence.valid_length) for work in works])
        assert all(work.sequence.valid_length == len(work.sequence.tokens) - 1 for work in works)
        following = []
        for work in works:
            kept = draw.randint(0, len(work.tokens))
            start = len(work.sequence.tokens) - len(work.tokens)
            work.sequence.replace_from(start, [*work.tokens[:kept], draw.randrange(VOCABULARY)])
            again = work_of(work.options, draw.randint(1, 8), [0])
            again.held, again.sequence, again.step = work.held, work.sequence, 8 + step
            following.append(again)
        works = following
        runner.cache.check_integrity()
    return found


@pytest.mark.parametrize("kinds", [["block"], ["greedy"], ["coupled"], list(KINDS)], ids=lambda kinds: kinds[0])
def test_a_model_proposes_the_same_over_rounds(kinds: list[str], tmp_path: Path) -> None:
    """Beside others a row's logits may differ in the last bits, and so may its counts."""
    folder = make_model(tmp_path, vocab_size=VOCABULARY, initializer_range=0.3)
    runner = load(folder)
    actual, expected = in_rounds(runner, True, kinds), in_rounds(load(folder), False, kinds)
    assert not runner.chain_misses
    for drawn, hosted in zip(actual, expected, strict=True):
        for ((tokens, counts, _), length), ((host_tokens, host_counts, _), host_length) in zip(
            drawn, hosted, strict=True
        ):
            assert tokens == host_tokens and length == host_length
            for row, host_row in zip(counts, host_counts, strict=True):
                assert all(abs(row.get(t, 0) - host_row.get(t, 0)) < 2**TOTAL_LOG2 * 1e-4 for t in row | host_row)


MISSES = {
    ChainMiss.ADJUSTMENTS: {"options": SequenceOptions(sampling=replace(SAMPLED, banned_token_ids=(4,)))},
    ChainMiss.DENSE: {"options": SequenceOptions(sampling=SAMPLED, encoding=Encoding.DENSE)},
    ChainMiss.AHEAD: {"looks": True},
    ChainMiss.LENGTH: {"count": 33},
}


@pytest.mark.parametrize("miss", MISSES)
def test_what_the_device_does_not_draw_the_host_draws(miss: ChainMiss, tmp_path: Path) -> None:
    runner = load(make_model(tmp_path, vocab_size=VOCABULARY))
    values: dict[str, Any] = {"options": KINDS["block"], "count": 4, **MISSES[miss]}
    works = [work_of(values["options"], values["count"], [1, 2, 3]), work_of(KINDS["greedy"], 4, [5, 6])]
    works[0].looks = values.get("looks", False)
    _, statistics = run(runner, works, True)
    assert runner.chain_misses == Counter({miss: 1}), "counted once, not in each step"
    assert [len(work.tokens) for work in works] == [values["count"], 4]
    assert statistics.decode_tokens == values["count"] + 4


def test_a_device_that_fails_to_draw_is_not_asked_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The proposal under way and all later ones are drawn by the host."""
    runner = load(make_model(tmp_path, vocab_size=VOCABULARY))

    def refusing(work: Any) -> Any:
        raise torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing")

    runner.chains._capture = refusing
    works = works_of(["block", "greedy", "coupled"], [4, 4, 4])
    with caplog.at_level("ERROR"):
        run(runner, works, True)
    assert [len(work.tokens) for work in works] == [4, 4, 4] and not any(work.error for work in works)
    assert runner.chain_misses == {ChainMiss.FAILED: 3} and caplog.text.count("could not draw") == 1
    runner.cache.check_integrity()


ERRORS = {
    "at once": [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")],
    "at the end of a capture": [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        torch.AcceleratorError("CUDA error: operation failed due to a previous error during capture"),
    ],
}


@pytest.mark.parametrize("errors", ERRORS.values(), ids=ERRORS)
def test_a_capture_without_memory_costs_its_proposal_alone(errors: list[Exception], tmp_path: Path) -> None:
    runner = load(make_model(tmp_path, vocab_size=VOCABULARY))
    capture = runner.chains._capture

    def short(work: Any) -> Any:
        work()
        try:
            raise errors[0]
        finally:
            raise errors[-1]

    runner.chains._capture = short
    works = works_of(["block", "greedy", "coupled"], [4, 4, 4])
    run(runner, works, True)
    assert [len(work.tokens) for work in works] == [4, 4, 4] and not any(work.error for work in works)
    assert runner.chain_misses == {ChainMiss.MEMORY: 3}
    runner.chains._capture = capture
    later = works_of(["block", "greedy", "coupled"], [4, 4, 4])
    run(runner, later, True)
    assert runner.chain_misses == {ChainMiss.MEMORY: 3}, "the next one is drawn on the device"
    assert [work.tokens for work in later] == [work.tokens for work in works]
    runner.cache.check_integrity()


def test_clients_choose_among_few_kinds_of_top_k() -> None:
    works = [work_of(SequenceOptions(sampling=replace(SAMPLED, top_k=k)), 2, [1]) for k in range(0, 5000, 7)]
    for work in works:
        work.sequence.holding = Holding(0, None)
    kinds = {ChainKind.of([chain_of(work, holding_of(work.sequence), 4096)], 4096).use.largest_top_k for work in works}
    assert kinds == {0, 64, 1024, 4096}


def test_a_kind_too_many_is_drawn_by_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specpair.models.captured_chain.MOST_KINDS", 2)
    runner = load(make_model(tmp_path, vocab_size=VOCABULARY))
    for kind, misses in (("block", 0), ("greedy", 0), ("top-p", 1), ("block", 1), ("coupled", 2), ("greedy", 2)):
        works = works_of([kind], [4])
        run(runner, works, True)
        assert len(works[0].tokens) == 4 and works[0].error is None
        assert runner.chain_misses[ChainMiss.KINDS] == runner.chain_misses.total() == misses
    assert len(runner.chains._kinds) == 2


@torch.inference_mode()
def test_without_room_for_a_whole_proposal_the_host_draws_it(tmp_path: Path) -> None:
    """Token by token it takes the cache of an idle sequence."""
    runner = load(make_model(tmp_path, vocab_size=VOCABULARY), num_blocks=8, block_size=4, max_model_len=32)
    idle, work = work_of(KINDS["block"], 1, [1] * 20), work_of(KINDS["block"], 8, [2] * 10)
    turns, _ = run(runner, [idle], True)
    turns.add([work])
    while turns.works:
        turns.turn()
    assert len(work.tokens) == 8 and work.error is None and idle.sequence.holding is None
    assert runner.chain_misses == {ChainMiss.CACHE: 1}
    runner.cache.check_integrity()


@pytest.mark.parametrize("kinds", [*COMPANIES[-3:], ["block", "top-p"]], ids=str)
def test_no_step_asks_the_host(kinds: list[str]) -> None:
    model = TableChains(torch.empty(VOCABULARY, VOCABULARY, device=DEVICE))
    works = works_of(kinds, [4] * len(kinds), min_confidence=0.5)
    for work in works:
        work.sequence.holding = model.cache.open([])
    chains = [chain_of(work, holding_of(work.sequence), VOCABULARY) for work in works]
    tensors = model.chains._tensors_for(len(works), ChainKind.of(chains, VOCABULARY), VOCABULARY)
    with SilentDevice():
        model.chains._step(len(works), 0, tensors)
