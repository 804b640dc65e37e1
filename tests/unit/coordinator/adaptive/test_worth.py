"""What proposals are worth: the break-even, the best number and the gain fit the costs that are known."""

import pytest

from coordinator.adaptive import LengthController
from coordinator.adaptive.worth import worth_of
from specpair.model_info import PassCost
from specpair.options import Drafter, Rule
from tests.unit.coordinator.adaptive.test_plan import BENT, FLAT, STEEP, times


def test_at_the_break_even_one_token_is_as_fast_as_none() -> None:
    for curve in (FLAT, BENT, STEEP):
        for count in (1, 4, 16):
            costs = times(curve)
            worth = worth_of(costs, count, None, 16)
            rate = count * (1.0 + worth.break_even) / costs.of_all(count, 1)
            assert rate == pytest.approx(count / costs.plain(count))
            assert (worth.acceptance, worth.best_length, worth.gain) == (None, None, None)


def test_the_best_number_falls_with_the_load() -> None:
    worths = [worth_of(times(BENT), count, (0.8, 0.8, 0.8), 16) for count in (1, 4, 16)]
    lengths = [worth.best_length or 0 for worth in worths]
    assert lengths[0] > lengths[1] >= lengths[2]
    assert worths[0].gain is not None and worths[0].gain > 1.5


def test_where_none_pays_the_gain_is_one() -> None:
    worth = worth_of(times(STEEP), 16, (0.2, 0.2, 0.2), 16)
    assert (worth.best_length, worth.gain) == (0, 1.0) and worth.break_even > 0.2


def test_a_controller_knows_the_break_even_from_what_was_published() -> None:
    controller = LengthController()
    assert controller.worth(Drafter.MODEL, 8) is None
    curve = tuple(PassCost(token_count=rows, seconds=seconds) for rows, seconds in BENT)
    controller.publish(curve, (PassCost(token_count=1, seconds=1.0),))
    worth = controller.worth(Drafter.MODEL, 8)
    assert worth is not None and worth.break_even == pytest.approx(0.1) and worth.best_length is None
    output = controller.enter(Drafter.MODEL, Rule.BLOCK, 0.0, None)
    assert controller.worth(Drafter.MODEL, 8) == worth, "nothing was judged yet"
    output.leave()
