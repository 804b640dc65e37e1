"""Compares outputs and reports the findings."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specpair.exactness.draws import Draw, Drawn
from specpair.exactness.g_test import g_test
from specpair.exactness.holm import holm
from specpair.exactness.plan import EqualityTest, Kind, Plan, SampledTest
from specpair.exactness.pooling import Bin, pool
from specpair.exactness.power import detectable_distance
from specpair.exactness.report import Comparison, Equality, Report, Speculated, Verdict
from specpair.exactness.rounding import Rounding
from specpair.options import Rule

Outputs = Mapping[Draw, Drawn]


def judge(plan: Plan, outputs: Outputs, *, alpha: float, rounding: Rounding, draft_rounding: Rounding) -> Report:
    """The report for a plan, from the outputs of all its requests.

    `alpha` is the probability that a run of an exact server finds a difference in some comparison. `rounding` is the
    target's; `draft_rounding` matters only where the draft affects what is drawn.
    """
    either = max(rounding, draft_rounding, key=_flips)
    by_kind = {Kind.GREEDY: rounding, Kind.COUPLED: rounding, Kind.SEEDS: either, Kind.AHEAD: either}
    return Report(
        alpha=alpha,
        equalities=[judge_equality(test, outputs, by_kind[test.kind]) for test in plan.equalities],
        comparisons=_compare(plan.sampled, outputs, alpha),
        speculated=[_speculated(rule, plan, outputs) for rule in dict.fromkeys(test.rule for test in plan.sampled)],
    )


def rules_hardly_speculated(outputs: Outputs) -> list[Rule]:
    """Rules without any proposal, or whose draft failed in most rounds: a test would compare the target with itself."""
    proposed: Counter[Rule] = Counter()
    surplus: Counter[Rule] = Counter()
    for draw, drawn in outputs.items():
        if draw.num_speculative_tokens > 0:
            proposed[draw.rule] += drawn.draft_token_count
            surplus[draw.rule] += 2 * drawn.fallback_count - drawn.round_count
    return [rule for rule, count in proposed.items() if count == 0 or surplus[rule] > 0]


def worked_ahead(outputs: Outputs) -> bool:
    """Whether any proposal was prepared ahead: else outputs with and without working ahead are the same thing."""
    return any(drawn.ahead_count for drawn in outputs.values())


def judge_equality(test: EqualityTest, outputs: Outputs, rounding: Rounding) -> Equality:
    """Greedy outputs may differ from a near-tie of the reference on; a small share of sampled outputs may differ."""
    pairs = [(outputs[one], outputs[other]) for one, other in test.pairs]
    if test.kind in (Kind.SEEDS, Kind.AHEAD):  # a round without the draft's answer uses other noise
        kept = [pair for pair in pairs if not any(drawn.fallback_count for drawn in pair)]
    else:
        kept = pairs
    parted = [pair for pair in kept if pair[0].token_ids != pair[1].token_ids]
    if test.kind is Kind.GREEDY:
        different = [pair for pair in parted if not _is_near_tie(*pair, rounding.gap)]
    else:
        different = parted if len(parted) > rounding.flips * len(kept) else []
    return Equality(
        kind=test.kind,
        rule=test.rule,
        num_speculative_tokens=test.num_speculative_tokens,
        equal=len(kept) - len(parted),
        near_ties=len(parted) - len(different),
        different=len(different),
        skipped=len(pairs) - len(kept),
        verdict=_verdict(len(kept), len(parted), len(different)),
        note=_where(*different[0], test.kind) if different else "",
    )


def parting(one: Sequence[int], other: Sequence[int]) -> int:
    """The first position at which two outputs differ; the length of the shorter one if it begins the longer."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (first, second) in pairs if first != second), min(len(one), len(other)))


def _flips(rounding: Rounding) -> float:
    return rounding.flips


def _is_near_tie(reference: Drawn, other: Drawn, gap: float) -> bool:
    position = parting(reference.token_ids, other.token_ids)
    gaps = reference.gaps or ()
    return position < len(gaps) and gaps[position] < gap


def _where(reference: Drawn, other: Drawn, kind: Kind) -> str:
    position = parting(reference.token_ids, other.token_ids)
    gaps = reference.gaps or ()
    if kind is not Kind.GREEDY:
        return f"parts at token {position + 1}"
    if position >= len(gaps):
        return f"parts at token {position + 1}; the server reports no logprobs, so near-ties cannot be recognised"
    return f"parts at token {position + 1}, where the two best logprobs differ by {gaps[position]:.2g}"


def _verdict(compared: int, parted: int, different: int) -> Verdict:
    if not compared:
        return Verdict.UNTESTED
    if different:
        return Verdict.DIFFERENT
    return Verdict.NEAR_TIE if parted else Verdict.SAME


@dataclass(frozen=True, kw_only=True)
class _Table:
    """The bins of one comparison."""

    test: SampledTest
    length: int
    bins: list[Bin]


def _compare(tests: Sequence[SampledTest], outputs: Outputs, alpha: float) -> list[Comparison]:
    tables = [
        _Table(test=test, length=length, bins=_bins(test, outputs, length)) for test in tests for length in test.lengths
    ]
    results = [g_test(table.bins) for table in tables]
    # Tables with one bin test nothing. That is known without looking at the difference, so Holm may leave them out.
    tested = [i for i, result in enumerate(results) if result.df]
    corrected = dict(zip(tested, holm([results[i].p_value for i in tested]), strict=True))
    comparisons = []
    for i, (table, result) in enumerate(zip(tables, results, strict=True)):
        sizes = len(table.test.speculated), len(table.test.plain)
        p_value = corrected.get(i, 1.0)
        comparisons.append(
            Comparison(
                prompt=table.test.prompt,
                options=table.test.options,
                rule=table.test.rule,
                length=table.length,
                draws=sizes,
                bins=len(table.bins),
                test=result,
                corrected_p_value=p_value,
                # Holm's strictest level: a lower bound of the test's power, whatever the other tests find.
                detectable_distance=detectable_distance(*sizes, result.df, alpha / max(1, len(tested))),
                verdict=_verdict(result.df, 0, p_value <= alpha),
            )
        )
    return comparisons


def _bins(test: SampledTest, outputs: Outputs, length: int) -> list[Bin]:
    samples = [Counter(outputs[draw].token_ids[:length] for draw in draws) for draws in (test.speculated, test.plain)]
    return pool(*samples)


def _speculated(rule: Rule, plan: Plan, outputs: Outputs) -> Speculated:
    drawn = [outputs[draw] for test in plan.sampled if test.rule is rule for draw in test.speculated]
    return Speculated(
        rule=rule,
        draft_token_count=sum(entry.draft_token_count for entry in drawn),
        accepted_token_count=sum(entry.accepted_token_count for entry in drawn),
        round_count=sum(entry.round_count for entry in drawn),
        fallback_count=sum(entry.fallback_count for entry in drawn),
    )
