"""What the bench makes of what it measured."""

from collections import Counter

import pytest

from bench.case import Case, Peer
from bench.comparison_rows import bases_of, points_of, rows_of
from bench.drafters import verdict
from bench.figures import Acceptance, Prediction, RoundMeans, equivalent_acceptance, same_text
from bench.interleaving import group, turns
from bench.measurement import Counts, Measurement, Output, Turn
from bench.ratios import Estimate
from specpair.theory.speedup import expected_tokens, profile_from_counts, walltime_factor

PLAIN = Case(peer=Peer.SPECPAIR, temperature=0.0, num_speculative_tokens=0)
FIVE = Case(peer=Peer.SPECPAIR, temperature=0.0, num_speculative_tokens=5)
GENERATE = PLAIN.generate()
ASSISTED = Case(peer=Peer.ASSISTED, temperature=0.0, num_speculative_tokens=2)
ASSISTED_DEFAULT = Case(peer=Peer.ASSISTED, temperature=0.0)

NOTHING = Counts()
ROUNDS = Counts(
    rounds=100,
    drafted=500,
    accepted=150,
    drafted_per_position=(100, 100, 100, 100, 100),
    accepted_per_position=(60, 40, 30, 15, 5),
    draft_seconds=0.5,
    verify_seconds=1.0,
    network_seconds=0.2,
)


def output(tokens: int, seconds: float, counts: Counts = NOTHING) -> Output:
    return Output(
        token_ids=[[1] * tokens],
        first_token_seconds=0.1,
        tokens=tokens,
        seconds=seconds,
        output_seconds=seconds,
        round_seconds=[0.01],
        counts=counts,
    )


def measured(case: Case, tokens: int, seconds: float, counts: Counts = NOTHING) -> list[Measurement]:
    """Two prompts, two repetitions, all the same."""
    return [
        Measurement(turn=Turn(case=case, prompt=prompt, repetition=repetition), output=output(tokens, seconds, counts))
        for prompt in range(2)
        for repetition in range(2)
    ]


def test_counts_add_up_by_position() -> None:
    short = Counts(rounds=1, drafted=2, accepted=1, drafted_per_position=(1, 1), accepted_per_position=(1, 0))
    total = Counts.total([short, ROUNDS])
    assert (total.rounds, total.drafted, total.accepted) == (101, 502, 151)
    assert total.accepted_per_position == (61, 40, 30, 15, 5)
    assert Counts.total([]) == Counts()


def test_prediction_is_theorem_3_8_of_the_measured_profile() -> None:
    prediction = Prediction.of(ROUNDS, tokens=250)
    assert prediction is not None
    assert prediction.cost_ratio == pytest.approx(0.1)
    profile = profile_from_counts(ROUNDS.rounds, ROUNDS.accepted_per_position)
    assert prediction.speedup == pytest.approx(walltime_factor(profile, 5, 0.1))


def test_nothing_proposed_is_not_predicted() -> None:
    assert Prediction.of(Counts(rounds=10, verify_seconds=1.0), tokens=10) is None


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.8, 1.0])
def test_equivalent_acceptance_gives_the_tokens_back(alpha: float) -> None:
    assert equivalent_acceptance(expected_tokens(alpha, 5), 5) == pytest.approx(alpha, abs=1e-6)


def test_acceptance_by_position() -> None:
    acceptance = Acceptance.of(ROUNDS, tokens=250)
    assert (acceptance.rate, acceptance.first, acceptance.tokens_per_round) == pytest.approx((0.3, 0.6, 2.5))
    assert acceptance.per_position == pytest.approx((0.6, 0.4, 0.3, 0.15, 0.05))
    assert Acceptance.of(Counts(rounds=4), tokens=4).rate is None


def test_a_round_adds_up_to_the_time_at_the_client() -> None:
    parts = RoundMeans.of(ROUNDS, output_seconds=2.0)
    assert (parts.draft_ms, parts.verify_ms, parts.network_ms, parts.other_ms) == pytest.approx((5.0, 10.0, 2.0, 3.0))
    assert parts.total_ms == pytest.approx(20.0)


def test_rows_compare_within_a_block() -> None:
    measurements = [
        *measured(GENERATE, 100, 2.0),
        *measured(ASSISTED, 100, 1.0),
        *measured(ASSISTED_DEFAULT, 100, 0.8),
        *measured(PLAIN, 100, 4.0),
        *measured(FIVE, 250, 5.0, ROUNDS),
    ]
    block = [GENERATE, ASSISTED, ASSISTED_DEFAULT, PLAIN, FIVE]
    assert bases_of(block, measurements).assisted == ASSISTED_DEFAULT
    row = rows_of(block, measurements)[-1]
    assert row.to_generate is not None
    assert (row.to_plain.value, row.to_generate.value) == pytest.approx((2.0, 1.0))
    assert row.to_assisted is not None
    assert row.to_assisted.value == pytest.approx(50 / 125)
    assert row.predicted == pytest.approx(2.5 / 1.5)
    assert row.share_of_prediction is not None
    assert row.share_of_prediction.value == pytest.approx(2.0 / (2.5 / 1.5))
    (point,) = points_of([row])
    assert point.predicted == pytest.approx(walltime_factor(point.acceptance, 5, point.cost_ratio))


def test_same_text_counts_equal_outputs() -> None:
    left = {(0, 0): output(3, 1.0), (0, 1): output(3, 1.0)}
    right = {(0, 0): output(3, 2.0), (0, 1): output(4, 2.0)}
    assert same_text(left, right) == 0.5


@pytest.mark.parametrize(
    ("interval", "expected"), [((0.98, 1.2), "not slower"), ((0.9, 1.1), "within noise"), ((0.8, 0.9), "slower")]
)
def test_verdict_looks_at_the_interval(interval: tuple[float, float], expected: str) -> None:
    assert verdict(Estimate(value=1.0, low=interval[0], high=interval[1])) == expected


def test_every_case_has_its_turn_beside_those_it_is_compared_with() -> None:
    cases = [case.batched(size) for size in (1, 4) for case in (PLAIN, FIVE, GENERATE)]
    order = turns(cases, prompts=8, repetitions=3, seed=0)
    counted = Counter((turn.case, turn.prompt, turn.repetition) for turn in order)
    assert set(counted.values()) == {1}
    assert len(order) == 3 * (3 * 8 + 3 * 2)  # a batch of 4 has two groups of prompts
    for start in range(0, len(order), 3):
        together = order[start : start + 3]
        assert len({(turn.case.block, turn.prompt, turn.repetition) for turn in together}) == 1
    assert len({tuple(turn.case for turn in order[start : start + 3]) for start in range(0, 24, 3)}) > 1, "shuffled"
    assert order == turns(cases, prompts=8, repetitions=3, seed=0)


def test_a_batch_takes_the_prompts_that_follow_each_other() -> None:
    prompts = [[i] for i in range(6)]
    turn = Turn(case=PLAIN.batched(4), prompt=1, repetition=0)
    assert group(prompts, turn) == [[4], [5], [0], [1]]
    seeds = {Turn(case=PLAIN, prompt=p, repetition=r).seed for p in range(5) for r in range(5)}
    assert len(seeds) == 25
