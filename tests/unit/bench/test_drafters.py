"""Drafters against K = 0, and the control that shows the noise."""

from dataclasses import replace

from bench.case import Case
from bench.drafters import CONTROL, cases_of, name_of, note_of, order_of, plain_of, row_of
from bench.measurement import Measurement
from bench.options import BenchOptions
from specpair.options import Drafter
from tests.unit.bench.test_figures import output

OPTIONS = BenchOptions(
    target="t",
    draft="d",
    label="l",
    prompts=2,
    prompt_tokens=8,
    max_tokens=8,
    repetitions=3,
    ks=(),
    temperatures=(0.0, 1.0),
    batch_sizes=(1, 4),
    is_quick=False,
    is_saved=False,
)
DRAFTERS = [Drafter.MODEL, Drafter.NGRAM]


def measured(case: Case, seconds: float) -> list[Measurement]:
    return [Measurement(turn=turn, output=output(100, seconds)) for turn in order_of([case], 1, 2) if turn.case == case]


def test_every_block_has_a_control_whose_k_is_0_on_both_sides() -> None:
    cases = cases_of(OPTIONS, DRAFTERS)
    controls = [case for case in cases if name_of(case) == CONTROL]
    assert [case.block for case in controls] == [(0.0, 1), (1.0, 1), (0.0, 4), (1.0, 4)]
    assert all(case.num_speculative_tokens == plain_of(case).num_speculative_tokens == 0 for case in controls)
    assert len({plain_of(case) for case in cases} | set(cases)) == 2 * len(cases), "each is measured by itself"


def test_each_case_takes_turns_with_its_own_k_0() -> None:
    order = [turn.case for turn in order_of(cases_of(OPTIONS, DRAFTERS), OPTIONS.prompts, OPTIONS.repetitions)]
    for first, second in zip(order[::2], order[1::2], strict=True):
        assert second == plain_of(first) or first == plain_of(second)


def test_settings_and_controls_are_counted_apart() -> None:
    case, *_, control = cases_of(replace(OPTIONS, temperatures=(0.0,), batch_sizes=(1,)), DRAFTERS)
    rows = []
    for each, seconds in ((case, 1.2), (control, 1.0)):
        pair = measured(each, seconds) + measured(plain_of(each), 1.0)
        rows.append(row_of(each, plain_of(each), pair))
    assert [row.drafter for row in rows] == ["model", CONTROL]
    assert note_of(rows[:1]) == "1 of 1 settings are below 0.97 of K = 0, 1 of them surely"
    assert note_of(rows[1:]) == "0 of 1 controls, K = 0 on both sides, are below 0.97 of K = 0, 0 of them surely"
