"""Trials without proposals: how long proposals stay off after a lost one."""

from coordinator.adaptive.plain_trial import FIRST_HOLD, FIRST_INTERVAL, MOST_SETTLING, ROUNDS, PlainTrial


def propose(trial: PlainTrial, elapsed: float = 1.0) -> None:
    """Rounds with proposals, of two tokens each, until a trial begins."""
    while not trial.is_on:
        trial.add(2.0, elapsed, 1, was_asked=True)


def off(trial: PlainTrial, elapsed: float) -> int:
    """Plain rounds until proposals are on again."""
    count = 0
    while trial.is_on:
        trial.add(1.0, elapsed, 1, was_asked=False)
        count += 1
    return count


def test_each_trial_lost_in_a_row_holds_twice_as_long() -> None:
    trial, counts = PlainTrial(), list[int]()
    for _ in range(3):
        propose(trial)
        counts.append(off(trial, 0.3) - ROUNDS)
    assert counts == [FIRST_HOLD, 2 * FIRST_HOLD, 4 * FIRST_HOLD]


def test_a_trial_that_was_won_ends_the_growth() -> None:
    trial = PlainTrial()
    for elapsed, expected in ((0.3, FIRST_HOLD), (1.0, 0), (0.3, FIRST_HOLD)):
        propose(trial)
        assert off(trial, elapsed) == ROUNDS + expected


def test_a_clear_gain_makes_the_next_trial_wait() -> None:
    trial = PlainTrial()
    propose(trial)
    assert off(trial, 1.0) == ROUNDS
    for _ in range(8 * FIRST_INTERVAL):
        trial.add(2.0, 1.0, 1, was_asked=True)
    assert not trial.is_on


def test_it_says_for_how_many_rounds_of_each_output_proposals_stay_off() -> None:
    trial = PlainTrial()
    assert trial.rounds_left(3) == 0
    while not trial.is_on:
        trial.add(2.0, 1.0, 3, was_asked=True)
    left = trial.rounds_left(3)
    assert left == ROUNDS
    for _ in range(4):
        trial.add(1.0, 1.0, 3, was_asked=False)
    assert trial.rounds_left(3) == left - 1


def test_rounds_that_were_on_their_way_are_no_part_of_a_trial() -> None:
    """A run of a head may have more of them than a trial has rounds."""
    trial = PlainTrial()
    propose(trial)
    for _ in range(2 * ROUNDS):
        trial.add(2.0, 1.0, 1, was_asked=True)
    assert off(trial, 0.3) == ROUNDS + FIRST_HOLD


def test_rounds_beside_those_on_their_way_are_no_part_of_it_either() -> None:
    """One output is plain at once, another has a run under way, which slows both."""
    trial = PlainTrial()
    while not trial.is_on:
        trial.add(1.5, 1.9, 2, was_asked=True)
    for _ in range(2 * ROUNDS - 1):
        trial.add(1.0, 1.9, 2, was_asked=False)
    trial.add(1.5, 1.9, 2, was_asked=True)
    count = 0
    while trial.is_on:
        trial.add(1.0, 1.0, 2, was_asked=False)
        count += 1
    assert count == 2 * (ROUNDS + FIRST_HOLD)


def begun(load: int) -> PlainTrial:
    """A trial of outputs that were to give two tokens in each round of 1 second."""
    trial = PlainTrial()
    while not trial.is_on:
        trial.add(2.0, 1.0, load, was_asked=True)
    return trial


def test_what_waited_for_proposals_is_not_measured() -> None:
    """A run of rounds that began while others still proposed waited for their pass."""
    trial, count = begun(2), 0
    for _ in range(12):
        trial.add(1.0, 9.0, 2, was_asked=False, is_settled=False)
    while trial.is_on:
        trial.add(1.0, 0.3, 2, was_asked=False)
        count += 1
    assert count == 2 * (ROUNDS + FIRST_HOLD), "plain rounds are quicker, but for those"


def test_where_others_always_propose_rounds_beside_them_are_measured() -> None:
    trial, count = begun(2), 0
    while trial.is_on and count < 1000:
        trial.add(1.0, 0.3, 2, was_asked=False, is_settled=False)
        count += 1
    assert count == 2 * (MOST_SETTLING + ROUNDS + FIRST_HOLD)
