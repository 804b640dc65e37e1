"""What `verify-exactness` makes of outputs."""

import json
from collections.abc import Mapping
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from command.exactness.report import json_report, print_report
from specpair.exactness.draws import Draw, Drawn
from specpair.exactness.judgement import judge, judge_equality, parting, rules_hardly_speculated
from specpair.exactness.plan import EqualityTest, Kind, Plan, Settings, make_plan
from specpair.exactness.report import Equality, Report, Verdict
from specpair.exactness.rounding import HALF, NONE, SINGLE, Rounding, rounding_of
from specpair.options import Rule, SamplingOptions

SETTINGS = Settings(
    prompts=("a",),
    draws=200,
    seed=1,
    rules=(Rule.BLOCK, Rule.TOKEN),
    num_speculative_tokens=1,
    option_sets={"plain": SamplingOptions()},
)
PLAN = make_plan(SETTINGS)


def outputs(plan: Plan = PLAN, biased: Rule | None = None) -> dict[Draw, Drawn]:
    """Of a server whose tokens are two bits of the seed; under the biased rule the second is 0 if the first is."""
    return {draw: drawn(draw, biased) for draw in (*plan.equality_draws(), *plan.sampled_draws())}


def drawn(draw: Draw, biased: Rule | None) -> Drawn:
    speculates = draw.num_speculative_tokens > 0
    first, second = draw.sampling.seed & 1, draw.sampling.seed >> 1 & 1
    tokens = (first, first & second, 7) if speculates and draw.rule is biased else (first, second, 7)
    proposed = 10 if speculates else 0
    return Drawn(token_ids=tokens, round_count=4, draft_token_count=proposed, accepted_token_count=proposed // 2)


def report(made: Mapping[Draw, Drawn]) -> Report:
    return judge(PLAN, made, alpha=1e-3, rounding=SINGLE, draft_rounding=SINGLE)


def test_an_exact_server_passes_and_the_line_says_what_would_have_been_seen() -> None:
    result = report(outputs())
    assert result.passed and result.tested
    assert [entry.verdict for entry in result.comparisons] == [Verdict.SAME] * 4
    assert [(entry.bins, entry.test.df, entry.draws) for entry in result.comparisons] == [(4, 3, (200, 200))] * 4
    assert result.detectable_distance == pytest.approx(0.273, abs=0.001)
    assert "0.28 or more" in result.verdict_line and "90% probability" in result.verdict_line


def test_a_biased_rule_is_found_and_the_other_left_alone() -> None:
    result = report(outputs(biased=Rule.TOKEN))
    assert not result.passed
    assert {entry.rule for entry in result.comparisons if entry.verdict is Verdict.DIFFERENT} == {Rule.TOKEN}
    assert result.verdict_line.startswith("NOT EXACT: ")


def test_p_values_are_corrected_for_all_comparisons() -> None:
    for entry in report(outputs()).comparisons:
        assert entry.corrected_p_value >= entry.test.p_value
    worst = min(report(outputs(biased=Rule.TOKEN)).comparisons, key=lambda entry: entry.test.p_value)
    assert worst.corrected_p_value == pytest.approx(4 * worst.test.p_value)


def test_outputs_that_never_vary_are_no_test() -> None:
    constant = {draw: replace(output, token_ids=(1, 2, 3)) for draw, output in outputs().items()}
    result = report(constant)
    assert result.passed and not result.tested and result.detectable_distance is None
    assert {entry.verdict for entry in result.comparisons} == {Verdict.UNTESTED}
    assert "sampling was not tested" in result.verdict_line


def test_the_acceptance_of_the_sampled_outputs() -> None:
    block, token = report(outputs()).speculated
    assert (block.rule, token.rule) == (Rule.BLOCK, Rule.TOKEN)
    assert (block.draft_token_count, block.accepted_token_count, block.acceptance_rate) == (2000, 1000, 0.5)


def test_rules_that_never_proposed_are_named() -> None:
    made = outputs()
    assert rules_hardly_speculated(made) == []
    silent = {d: replace(o, draft_token_count=0) if d.rule is Rule.TOKEN else o for d, o in made.items()}
    assert rules_hardly_speculated(silent) == [Rule.TOKEN]
    failing = {
        d: replace(o, fallback_count=o.round_count) if d.rule is Rule.TOKEN and d.num_speculative_tokens else o
        for d, o in made.items()
    }
    assert rules_hardly_speculated(failing) == [Rule.TOKEN]


def parted(
    kind: Kind,
    count: int,
    of: int,
    rounding: Rounding = SINGLE,
    gaps: tuple[float, ...] | None = None,
    fallback_count: int = 0,
) -> Equality:
    """Of `of` pairs, `count` part at their second token."""
    draw = PLAN.equality_draws()[0]
    pairs = tuple((replace(draw, attempt=2 * i), replace(draw, attempt=2 * i + 1)) for i in range(of))
    made = {}
    for i, (one, two) in enumerate(pairs):
        made[one] = Drawn(token_ids=(1, 2, 3), gaps=gaps)
        made[two] = Drawn(token_ids=(1, 9, 3) if i < count else (1, 2, 3), fallback_count=fallback_count)
    test = EqualityTest(kind=kind, rule=Rule.BLOCK, num_speculative_tokens=3, pairs=pairs)
    return judge_equality(test, made, rounding)


@pytest.mark.parametrize(
    ("gaps", "rounding", "verdict", "note"),
    [
        ((9.0, 1e-4, 9.0), SINGLE, Verdict.NEAR_TIE, ""),
        ((1e-4, 0.5, 1e-4), SINGLE, Verdict.DIFFERENT, "parts at token 2, where the two best logprobs differ by 0.5"),
        ((9.0, 1e-4, 9.0), NONE, Verdict.DIFFERENT, "parts at token 2, where the two best logprobs differ by 0.0001"),
        ((9.0, 0.0, 9.0), NONE, Verdict.DIFFERENT, "parts at token 2, where the two best logprobs differ by 0"),
        ((9.0, 0.125, 9.0), HALF, Verdict.NEAR_TIE, ""),
        (
            None,
            SINGLE,
            Verdict.DIFFERENT,
            "parts at token 2; the server reports no logprobs, so near-ties cannot be recognised",
        ),
    ],
)
def test_greedy_outputs_may_part_at_near_ties_alone(
    gaps: tuple[float, ...] | None, rounding: Rounding, verdict: Verdict, note: str
) -> None:
    result = parted(Kind.GREEDY, 1, 10, rounding, gaps)
    assert (result.verdict, result.note, result.equal) == (verdict, note, 9)
    assert result.near_ties + result.different == 1


@pytest.mark.parametrize("kind", [Kind.COUPLED, Kind.SEEDS])
@pytest.mark.parametrize(
    ("count", "rounding", "verdict"),
    [
        (0, NONE, Verdict.SAME),
        (1, NONE, Verdict.DIFFERENT),
        (2, SINGLE, Verdict.NEAR_TIE),
        (3, SINGLE, Verdict.DIFFERENT),
        (90, HALF, Verdict.NEAR_TIE),
    ],
)
def test_of_sampled_outputs_a_small_share_may_part(
    kind: Kind, count: int, rounding: Rounding, verdict: Verdict
) -> None:
    result = parted(kind, count, 100, rounding)
    assert result.verdict is verdict and result.equal == 100 - count
    assert result.note == ("parts at token 2" if verdict is Verdict.DIFFERENT else "")


def test_repeats_without_the_draft_are_left_out_since_they_use_other_noise() -> None:
    assert parted(Kind.SEEDS, 4, 4, fallback_count=1).verdict is Verdict.UNTESTED
    assert parted(Kind.SEEDS, 4, 4, fallback_count=1).skipped == 4
    assert parted(Kind.COUPLED, 4, 4, fallback_count=1).verdict is Verdict.DIFFERENT


@pytest.mark.parametrize(
    ("one", "other", "position"), [([1, 2], [1, 3], 1), ([1, 2], [1, 2, 3], 2), ([1, 2, 3], [1], 1), ([], [4], 0)]
)
def test_where_outputs_part(one: list[int], other: list[int], position: int) -> None:
    assert parting(one, other) == position


def test_the_draft_of_a_repeated_request_may_round_too() -> None:
    """A deterministic target with a draft that is not: its proposals may part, the target's own outputs may not."""
    made = outputs()
    for kind in (Kind.SEEDS, Kind.GREEDY):
        test = next(test for test in PLAN.equalities if test.kind is kind)
        made[test.pairs[0][1]] = Drawn(token_ids=(5, 5, 5), draft_token_count=1)
    result = judge(PLAN, made, alpha=1e-3, rounding=NONE, draft_rounding=SINGLE)
    assert [entry.kind for entry in result.equalities if entry.verdict is Verdict.NEAR_TIE] == [Kind.SEEDS]
    assert [entry.kind for entry in result.equalities if entry.verdict is Verdict.DIFFERENT] == [Kind.GREEDY]


def test_how_far_rounding_goes() -> None:
    assert rounding_of("float32", is_deterministic=False) is SINGLE
    assert rounding_of("bfloat16", is_deterministic=False) is HALF
    assert rounding_of("bfloat16", is_deterministic=True) is NONE


def test_the_json_document_holds_every_test() -> None:
    result = report(outputs(biased=Rule.TOKEN))
    document = json.loads(json_report(result, SETTINGS))
    assert document["verdict"] == "fail" and document["seed"] == 1 and document["alpha"] == 1e-3
    assert document["acceptance"][0]["acceptance_rate"] == 0.5
    assert len(document["equalities"]) == len(result.equalities)
    first = document["comparisons"][0]
    assert (first["rule"], first["length"], first["bins"], first["df"]) == ("block", 2, 4, 3)
    assert first["p_value"] == result.comparisons[0].test.p_value and first["verdict"] == "same"


def test_the_tables_end_with_acceptance_and_verdict() -> None:
    console = Console(record=True, width=200, file=StringIO())
    result = report(outputs(biased=Rule.TOKEN))
    print_report(console, result, SETTINGS)
    text = console.export_text()
    assert "token: 1000 of 2000 proposed tokens accepted (50.0%)" in text
    assert text.count("different") >= 2 and text.rstrip().endswith(result.verdict_line)
