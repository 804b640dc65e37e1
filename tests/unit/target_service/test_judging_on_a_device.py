"""The target's judgement where its rows are on a device: the decisions of the CPU, in one synchronisation. CPU tensors
stand for those of the device."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from specpair.options import Rule, SamplingOptions
from specpair.speculation import coupling, device_race
from specpair.speculation.counted_rows import CountedRows
from specpair.speculation.device_race import race
from specpair.speculation.device_randomness import as_signed
from specpair.speculation.draft_rows import DraftRows
from specpair.speculation.sampling import SamplingRows, came_of_finite, probabilities
from specpair.speculation.verification import Block, Judgement, verify
from target_service import judging
from tests.silent_device import DEVICE, SilentDevice
from tests.unit.draft_service.drafters.test_model import KINDS, drafted, outcome, random_logits
from tests.unit.draft_service.drafters.test_model import verify as verification

pytestmark = pytest.mark.usefixtures("arithmetic")

DRAWN = ["block", "token", "top-p", "coupled", "lenient", "greedy lenient", "dense", "hiding"]


def on_a_device(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has the judges compute on tensors as they do on a GPU. Returns what grows with each transfer to the host."""
    transfers: list[int] = []
    on_host = judging.on_host

    def counting(parts: Any) -> Any:
        assert all(isinstance(part, Tensor) for part in parts)
        transfers.append(len(parts))
        return on_host(parts)

    def raced(target: Tensor, seeds: Any, positions: Any) -> Any:
        keys = (torch.from_numpy(as_signed(numbers)) for numbers in (seeds, positions))
        chosen, finite = counting([race(target, *keys), came_of_finite(target)])
        return chosen, finite > 0

    monkeypatch.setattr(judging, "native", lambda tensor: tensor)
    monkeypatch.setattr(judging, "placed", lambda array, device: torch.from_numpy(np.require(array, requirements="W")))
    monkeypatch.setattr(judging, "on_host", counting)
    monkeypatch.setattr(judging, "choices", raced)
    return transfers


@pytest.mark.parametrize("kind", DRAWN)
def test_the_decisions_are_those_of_the_cpu(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed, counts in enumerate([(3, 1, 2), (0, 0), (4,), (0, 5)]):
        proposals = [drafted(KINDS[kind], count, seed) if count else None for count in counts]
        logits = random_logits(seed + 9, sum(counts) + len(counts))
        if seed == 0:
            logits[0, 3] = torch.nan
        expected = [verification(KINDS[kind], proposal) for proposal in proposals]
        judging.advance_verification([*expected], logits.clone())
        with monkeypatch.context() as patch:
            transfers = on_a_device(patch)
            actual = [verification(KINDS[kind], proposal) for proposal in proposals]
            judging.advance_verification([*actual], logits.clone())
        assert [outcome(work) for work in actual] == [outcome(work) for work in expected]
        assert [work.error is None for work in actual] == [seed > 0, *[True] * (len(counts) - 1)]
        assert len(transfers) == 1


def judged(rule: Rule) -> Judgement:
    """Two proposals of two tokens, on the device."""

    def whole(*shape: int) -> Tensor:
        return torch.ones(shape, dtype=torch.int64, device=DEVICE)

    def parts(*shape: int) -> Tensor:
        return torch.ones(shape, dtype=torch.float64, device=DEVICE)

    draft = DraftRows(whole(2, 2, 4), parts(2, 2, 4), parts(2, 2))
    block = Block(whole(2, 2), whole(2), draft, whole(2, 2), rule)
    return verify(torch.ones(6, 50, device=DEVICE), block, parts(2, 2), whole(2), whole(2))


@pytest.mark.parametrize("rule", [Rule.TOKEN, Rule.BLOCK])
def test_no_rule_waits_for_the_device(rule: Rule) -> None:
    with SilentDevice():
        assert judged(rule).next_tokens.shape == (2,)


def test_no_option_waits_for_the_device() -> None:
    """Options are copied to the device, and nothing comes back."""
    options = [SamplingOptions(temperature=0.5, top_k=5, top_p=0.9, min_p=0.1), SamplingOptions(temperature=0.0)]
    rows = SamplingRows(options, [3, 1], DEVICE)
    assert probabilities(torch.ones(4, 5000, device=DEVICE), rows).device == DEVICE


def test_rows_are_raced_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_race, "RACED_ROWS", 2)
    target = random_logits(1, 5).softmax(-1)
    expected, _ = coupling.choices(target, range(5), range(5))
    parts = [race(*part) for part in device_race.parts_of(target, [torch.arange(5)] * 2)]
    assert [len(part) for part in parts] == [2, 2, 1]
    assert np.array_equal(torch.cat(parts).numpy(), expected)


@pytest.mark.usefixtures("by_numpy")
def test_without_the_compiled_library_a_wide_row_is_padded_with_no_others() -> None:
    """One proposal may have a row of the whole vocabulary; numpy pads the rows that it judges together."""
    narrow, wide = (verification(KINDS["block"], drafted(KINDS["block"], 1, 0)) for _ in range(2))
    tokens = list(range(judging.WIDE_SUPPORT + 1))
    row = CountedRows.one_hot([0], len(tokens))
    row.numbers[0], row.id_bytes = len(tokens), np.array(tokens, np.uint32).tobytes()
    wide.take_rows(row)
    assert len(judging.by_kind([narrow, wide], is_on_host=True)) == 2
