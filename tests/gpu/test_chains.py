"""Proposals and verdicts on a GPU, without a synchronisation between: run by `make test-gpu` where there is one."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from specpair.models.capture import GraphCapture
from specpair.models.chain_tensors import ChainTensors
from specpair.options import Rule, SamplingOptions
from specpair.speculation.arrays import on_host, placed
from specpair.speculation.coupling import choices
from specpair.speculation.draft_rows import DraftRows
from specpair.speculation.sampling import SamplingRows, probabilities
from specpair.speculation.verification import Block, packed_rows, verify
from tests.unit.draft_service.drafters.test_chains import (
    COMPANIES,
    KINDS,
    TableChains,
    by_device,
    by_host,
    random_table,
    works_of,
)
from tests.unit.specpair.speculation.test_rowwise import random_block

pytestmark = [pytest.mark.gpu, pytest.mark.needs("CUDA")]

GPU = "cuda:0"


@contextmanager
def without_synchronisation() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("kinds", COMPANIES, ids=lambda kinds: kinds[0] if len(kinds) == 1 else f"{len(kinds)}")
def test_a_proposal_is_that_of_the_host(kinds: list[str]) -> None:
    """With the same tables of logits, on the GPU as well: the softmax is the same one."""
    device = torch.device(GPU)
    model = TableChains(random_table().to(device), GraphCapture(device))
    for seed in range(3):
        counts = [random.Random(seed + place).randint(1, 9) for place in range(len(kinds))]
        expected, actual = works_of(kinds, counts), works_of(kinds, counts)
        by_host(expected, model.table)
        by_device(actual, model)
        assert [work.tokens for work in actual] == [work.tokens for work in expected]
        for work in actual:
            model.cache.free(work.sequence.holding)  # type: ignore[arg-type]


def test_the_steps_of_a_proposal_wait_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device(GPU)
    model = TableChains(random_table().to(device), GraphCapture(device))
    first = works_of(list(KINDS), [6] * len(KINDS))
    by_device(first, model)  # captures
    for work in first:
        model.cache.free(work.sequence.holding)  # type: ignore[arg-type]
    fill, fetch = ChainTensors.fill, ChainTensors.fetch

    def filling(self: ChainTensors, *arguments: Any) -> None:
        torch.cuda.set_sync_debug_mode("error")
        fill(self, *arguments)

    def fetching(self: ChainTensors, *arguments: Any) -> Any:
        torch.cuda.set_sync_debug_mode("default")
        return fetch(self, *arguments)

    monkeypatch.setattr(ChainTensors, "fill", filling)
    monkeypatch.setattr(ChainTensors, "fetch", fetching)
    with without_synchronisation():
        torch.cuda.set_sync_debug_mode("default")
        by_device(works_of(list(KINDS), [6] * len(KINDS)), model)


def test_coupled_choices_are_those_of_the_cpu() -> None:
    rows = (3 * torch.randn(40, 5000, generator=torch.Generator().manual_seed(0))).softmax(-1)
    expected, _ = choices(rows, range(40), range(40))
    actual, finite = choices(rows.to(GPU), range(40), range(40))
    assert np.array_equal(actual, expected) and finite.all()


@pytest.mark.parametrize("rule", [Rule.TOKEN, Rule.BLOCK])
def test_a_verdict_is_that_of_the_cpu_and_waits_once(rule: Rule) -> None:
    draw = np.random.default_rng(0)
    tokens, draft = random_block(draw, 4, 30, 200)
    logits = 2 * torch.randn(5, 200, generator=torch.Generator().manual_seed(1))
    options, lengths, uniforms = [SamplingOptions(temperature=0.7, top_p=0.95)], np.array([4]), draw.random((1, 5))

    def judged(device: torch.device) -> list[Any]:
        target = probabilities(logits.to(device), SamplingRows(options, [5], device))
        parts = DraftRows(*(placed(part[None], device) for part in draft))
        rows = placed(packed_rows([4], 4), device)
        block = Block(placed(tokens[None], device), placed(lengths, device), parts, rows, rule)
        noise = [placed(part, device) for part in (uniforms[:, :4], uniforms[:, 4])]
        on_device = target.numpy() if device.type == "cpu" else target
        return list(verify(on_device, block, *noise))

    expected = on_host(judged(torch.device("cpu")))
    logits = logits.to(GPU)
    judged(torch.device(GPU))
    with without_synchronisation():
        found = judged(torch.device(GPU))
    assert [part.tolist() for part in on_host(found)] == [part.tolist() for part in expected]
