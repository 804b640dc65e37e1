"""What rounds take by calculation, and the bound that no synchronous K exceeds."""

import pytest

from bench.apart.arithmetic import Devices, co_located_bound, nearest, profile_of, synchronous_bound
from bench.apart.cells import ks_to_try
from specpair.options import WorkAhead

NEAR = Devices(verify_ms=20.0, step_ms=1.0, round_trip_ms=0.0)
FAR = Devices(verify_ms=20.0, step_ms=1.0, round_trip_ms=10.0)
PROFILE = [0.8] * 16


def test_a_round_is_a_pass_the_steps_and_the_round_trip() -> None:
    assert FAR.round_ms(5) == 35.0
    assert FAR.round_ms(0) == 20.0, "without a proposal nobody is asked"


@pytest.mark.parametrize("devices", [NEAR, FAR])
@pytest.mark.parametrize("acceptance", [0.1, 0.6, 0.85])
def test_the_bound_is_the_best_of_the_theorem_over_k(devices: Devices, acceptance: float) -> None:
    def per_second(k: int) -> float:
        return 1000 * (1 - acceptance ** (k + 1)) / (1 - acceptance) / devices.round_ms(k)

    best = synchronous_bound([acceptance] * 16, devices)
    assert best.tokens_per_second == pytest.approx(max(map(per_second, range(17))))
    assert best.tokens_per_second == pytest.approx(per_second(best.num_speculative_tokens))


def test_a_round_trip_lowers_the_bound_and_asks_for_longer_proposals() -> None:
    near, far = synchronous_bound(PROFILE, NEAR), synchronous_bound(PROFILE, FAR)
    assert far.tokens_per_second < near.tokens_per_second
    assert far.num_speculative_tokens > near.num_speculative_tokens


def test_one_device_has_no_round_trip() -> None:
    assert co_located_bound(PROFILE, FAR) == synchronous_bound(PROFILE, NEAR)


def test_a_pass_is_shared_by_the_sequences_of_a_batch() -> None:
    one, many = synchronous_bound(PROFILE, FAR), synchronous_bound(PROFILE, FAR, 8)
    assert many.tokens_per_second == pytest.approx(8 * one.tokens_per_second)
    assert many.num_speculative_tokens == one.num_speculative_tokens


def test_a_profile_is_the_chance_of_each_token_after_those_before_it() -> None:
    assert profile_of([0.8, 0.6, 0.3]) == pytest.approx([0.8, 0.75, 0.5])
    assert profile_of([0.5, 0.0, 0.0]) == [0.5, 0.0, 0.0]
    assert profile_of([0.5, 0.6]) == [0.5, 1.0], "the second position was measured in fewer rounds"


def test_the_ks_around_the_calculated_best_are_tried() -> None:
    assert nearest((1, 2, 3, 4, 6, 8), 4, 3) == [3, 4, 6]
    assert nearest((1, 2, 3, 4, 6, 8), 16, 3) == [4, 6, 8]
    assert nearest((1, 2, 3, 4, 6, 8), 0, 2) == [1, 2]


def test_working_ahead_is_also_measured_from_half_of_the_best_synchronous_k_on() -> None:
    tried = {WorkAhead.OFF: 3, WorkAhead.ON: 3, WorkAhead.AUTO: 1}
    wanted = {WorkAhead.OFF: [8, 10, 12], WorkAhead.ON: [4, 6, 8, 10, 12], WorkAhead.AUTO: [10]}
    assert ks_to_try(10, tried, 3) == wanted
    assert ks_to_try(10, tried, 0)[WorkAhead.ON] == [8, 10, 12]
    assert ks_to_try(8, tried, 3)[WorkAhead.ON] == [3, 4, 6, 8, 10]
    assert ks_to_try(3, tried, 3)[WorkAhead.ON] == [1, 2, 3, 4]
