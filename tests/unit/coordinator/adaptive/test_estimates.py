"""Running estimates: what was seen lately counts, single outliers hardly do."""

import random
from statistics import fmean

import pytest

from coordinator.adaptive.acceptance_estimate import AcceptanceEstimate, GroupAcceptance, posterior_mean
from coordinator.adaptive.dispersion import LEAST, MOST, Dispersion
from coordinator.adaptive.draft_activity import DraftActivity
from coordinator.adaptive.position_counts import PositionCounts
from coordinator.adaptive.running_mean import RunningMean, SteadyMean
from coordinator.adaptive.running_plane import RunningPlane, Slopes, common_slopes
from specpair.running_slope import RunningSlope


def test_a_running_mean_is_a_plain_mean_until_its_memory_is_full() -> None:
    mean = RunningMean(4)
    for sample in (1.0, 2.0, 6.0):
        mean.add(sample)
    assert mean.value == pytest.approx(3.0)
    for _ in range(40):
        mean.add(10.0)
    assert mean.value == pytest.approx(10.0, rel=1e-3)


@pytest.mark.parametrize("at", [0, 1, 3, 20])
def test_a_stall_hardly_moves_a_steady_mean(at: int) -> None:
    draw = random.Random(at)
    steady, plain = SteadyMean(16), RunningMean(16)
    for i in range(40):
        sample = 1000.0 if i == at else draw.gauss(100.0, 8.0)
        steady.add(sample)
        plain.add(sample)
        assert i < 2 or abs(steady.value - 100.0) < 15.0, f"after {i + 1} samples"
    assert steady.value == pytest.approx(100.0, abs=6.0)


def test_a_steady_mean_follows_a_lasting_change() -> None:
    mean = SteadyMean(10)
    for _ in range(100):
        mean.add(random.Random(1).gauss(100.0, 5.0))
    for _ in range(60):
        mean.add(200.0)
    assert mean.value > 190.0


def test_a_slope_is_its_prior_until_samples_say_more() -> None:
    slope = RunningSlope(256)
    assert slope.slope(3.0, 4.0) == 3.0
    for _ in range(100):
        slope.add(5.0, 135.0)
    assert slope.slope(3.0, 4.0) == pytest.approx(3.0), "one x tells nothing of a slope"
    draw = random.Random(0)
    for _ in range(200):
        x = draw.randint(1, 8)
        slope.add(x, 100.0 + 7.0 * x + draw.gauss(0.0, 2.0))
    assert slope.slope(3.0, 4.0) == pytest.approx(7.0, abs=0.3)
    assert RunningSlope(8).slope(-1.0, 1.0) == 0.0


def test_the_slopes_of_two_kinds_are_found_in_spite_of_their_difference_and_of_stalls() -> None:
    """Rounds with proposals have more rows and, for another reason, take 50 longer: that is no slope."""
    draw = random.Random(0)
    planes = RunningPlane(400), RunningPlane(400)
    for _ in range(400):
        for kind, plane in enumerate(planes):
            u, v = draw.randint(1, 4) + 10 * kind, draw.random()
            stall = 3000.0 if draw.random() < 0.02 else 0.0
            plane.add(u, v, 100.0 + 50.0 * kind + 4.0 * u + 30.0 * v + draw.gauss(0.0, 2.0) + stall)
    slopes = common_slopes(planes, Slopes(0.0, 0.0), Slopes(1.0, 1.0))
    assert slopes.first == pytest.approx(4.0, abs=1.5) and slopes.second == pytest.approx(30.0, abs=6.0)


def test_slopes_are_never_negative_and_begin_as_their_priors() -> None:
    assert common_slopes((RunningPlane(8),), Slopes(2.0, 5.0), Slopes(1.0, 1.0)) == Slopes(2.0, 5.0)
    plane = RunningPlane(100)
    for u in range(50):
        plane.add(u % 5, u % 3, -(u % 5) + 6.0 * (u % 3))
    slopes = common_slopes((plane,), Slopes(0.0, 0.0), Slopes(0.1, 0.1))
    assert slopes.first == 0.0 and slopes.second == pytest.approx(6.0, rel=0.05)


def test_a_position_is_tried_only_if_those_before_it_were_accepted() -> None:
    counts = PositionCounts(1e9)
    counts.add(asked=4, accepted=2)
    counts.add(asked=2, accepted=2)
    counts.add(asked=1, accepted=0)
    counts.add(asked=5, accepted=5)
    assert [round(tried, 3) for tried in counts.tried] == [4, 3, 4]
    assert [round(accepted, 3) for accepted in counts.accepted] == [3, 3, 3]


def segments(spread: float, count: int = 200, seed: int = 0) -> Dispersion:
    """Of outputs whose rates have such a standard deviation around 0.5."""
    draw, dispersion = random.Random(seed), Dispersion()
    for _ in range(count):
        rate = min(max(draw.gauss(0.5, spread), 0.0), 1.0)
        dispersion.add(sum(draw.random() < rate for _ in range(16)), 16, 0.5)
    return dispersion


def test_dispersion_tells_outputs_that_are_alike_from_others() -> None:
    alike = fmean(segments(0.0, seed=seed).value for seed in range(8))
    unlike = fmean(segments(0.25, seed=seed).value for seed in range(8))
    assert alike < 0.04 and 0.12 < unlike <= MOST
    certain = Dispersion()
    before = certain.value
    certain.add(0, 16, 0.001)
    assert certain.value == before and LEAST < before < MOST


def test_an_unknown_group_is_hoped_for_and_a_known_one_believed() -> None:
    group = GroupAcceptance()
    assert AcceptanceEstimate(group).rates() == pytest.approx((0.6, 0.65, 0.7))
    for _ in range(30):
        output = AcceptanceEstimate(group)
        for _ in range(20):
            output.add(asked=3, accepted=0)
        output.end()
    assert AcceptanceEstimate(group).rates()[0] < 0.03


def test_an_output_unlike_its_group_is_believed_soon() -> None:
    group = GroupAcceptance()
    for _ in range(200):
        AcceptanceEstimate(group).add(asked=1, accepted=0)
    output = AcceptanceEstimate(group)
    for _ in range(3):
        output.add(asked=1, accepted=1)
    assert output.rates()[0] > 0.3
    assert posterior_mean(0.5, 0.05, 6.0, 10.0) == pytest.approx((6.0 + 19.0 * 0.5) / 29.0), "within chance: Beta"


def test_a_text_that_changes_is_noticed() -> None:
    draw, output = random.Random(0), AcceptanceEstimate(GroupAcceptance())
    for _ in range(60):
        output.add(asked=1, accepted=int(draw.random() < 0.85))
    assert output.rates()[0] > 0.75
    for _ in range(12):
        output.add(asked=1, accepted=0)
    assert output.rates()[0] < 0.35


def test_draft_activity_counts_those_who_wait() -> None:
    activity = DraftActivity()
    activity.begin(10.0)
    activity.begin(11.0)
    activity.end(13.0)
    activity.end(14.0)
    assert activity.integral(20.0) - activity.integral(20.0) == 0.0
    assert activity.integral(30.0) == pytest.approx(1.0 + 2 * 2.0 + 1.0)
