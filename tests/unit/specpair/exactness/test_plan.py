"""Which requests `verify-exactness` makes."""

from dataclasses import replace

from specpair.exactness.draws import Draw
from specpair.exactness.plan import OPTION_SETS, Kind, Settings, make_plan
from specpair.options import Rule

SETTINGS = Settings(prompts=("a", (1, 2)), draws=20, seed=5, num_speculative_tokens=4, max_num_speculative_tokens=5)


def test_every_prompt_option_set_and_rule_is_sampled() -> None:
    tests = make_plan(SETTINGS).sampled
    combinations = {(test.prompt, test.options, test.rule) for test in tests}
    assert len(combinations) == len(tests) == 2 * len(OPTION_SETS) * len(Rule)


def test_no_seed_comes_twice_among_the_sampled() -> None:
    """Neither within a sample nor in both: the coupled rule would give the same output with and without speculation."""
    draws = make_plan(SETTINGS).sampled_draws()
    assert len({draw.sampling.seed for draw in draws}) == len(draws) == 2 * len(OPTION_SETS) * (len(Rule) + 1) * 20


def test_both_samples_have_the_same_options_but_speculation() -> None:
    for test in make_plan(SETTINGS).sampled:
        assert {without_seed(draw) for draw in test.speculated} == {without_seed(draw) for draw in speculating(test)}
        assert {draw.num_speculative_tokens for draw in test.plain} == {0}


def speculating(test) -> list[Draw]:
    return [replace(draw, rule=test.rule, num_speculative_tokens=4) for draw in test.plain]


def without_seed(draw: Draw) -> Draw:
    return replace(draw, sampling=replace(draw.sampling, seed=0))


def test_whole_blocks_are_judged_and_every_length_but_the_first_is_compared() -> None:
    plan = make_plan(SETTINGS)
    assert {draw.max_tokens for draw in plan.sampled_draws()} == {6}
    assert {test.lengths for test in plan.sampled} == {(2, 3, 4, 5, 6)}


def test_the_target_alone_is_drawn_once_for_all_rules() -> None:
    plain = {(test.prompt, test.options): set() for test in make_plan(SETTINGS).sampled}
    for test in make_plan(SETTINGS).sampled:
        plain[test.prompt, test.options].add(test.plain)
    assert [len(samples) for samples in plain.values()] == [1] * 6


def test_the_seed_of_the_run_decides_everything() -> None:
    assert make_plan(SETTINGS) == make_plan(SETTINGS)
    assert make_plan(SETTINGS) != make_plan(replace(SETTINGS, seed=6))


def test_greedy_outputs_are_held_against_the_target_alone_within_the_servers_limit() -> None:
    greedy = [test for test in make_plan(SETTINGS).equalities if test.kind is Kind.GREEDY]
    assert {(test.rule, test.num_speculative_tokens) for test in greedy} == {(r, k) for r in Rule for k in (0, 1, 3, 5)}
    for test in greedy:
        for reference, other in test.pairs:
            assert reference.sampling.is_greedy and reference.num_speculative_tokens == 0 and reference.wants_gaps
            assert other == replace(
                reference, rule=test.rule, num_speculative_tokens=test.num_speculative_tokens, wants_gaps=False
            )


def test_coupled_outputs_share_their_seed_and_nothing_else_changes() -> None:
    coupled = [test for test in make_plan(SETTINGS).equalities if test.kind is Kind.COUPLED]
    assert [test.num_speculative_tokens for test in coupled] == [1, 4]
    for test in coupled:
        assert len(test.pairs) == SETTINGS.sequences
        assert len({reference.sampling.seed for reference, _ in test.pairs}) == SETTINGS.sequences
        for reference, other in test.pairs:
            assert reference.num_speculative_tokens == 0 and reference.rule is Rule.COUPLED
            assert other == replace(reference, num_speculative_tokens=test.num_speculative_tokens)


def test_repeated_requests_are_made_twice() -> None:
    repeated = [test for test in make_plan(SETTINGS).equalities if test.kind is Kind.SEEDS]
    assert [test.rule for test in repeated] == list(Rule)
    for test in repeated:
        assert all(other == replace(first, attempt=1) and first.attempt == 0 for first, other in test.pairs)


def test_only_the_wanted_rules_are_tested() -> None:
    plan = make_plan(replace(SETTINGS, rules=(Rule.TOKEN,)))
    assert {test.rule for test in (*plan.sampled, *plan.equalities)} == {Rule.TOKEN}
    assert Kind.COUPLED not in {test.kind for test in plan.equalities}
