"""The dashboard of acceptance: proposals of the draft, acceptance by the target, and the speedup."""

from deploy.grafana import ahead, several
from deploy.grafana.panels import (
    PER_SECOND,
    RATIO,
    SECONDS,
    TIMES,
    Panels,
    Query,
    bars,
    buckets,
    lines,
    mean,
    number,
)

ACCEPTED = "specpair_spec_decode_num_accepted_tokens"
PROPOSED = "specpair_spec_decode_num_draft_tokens"
DRAFTS = "specpair_spec_decode_num_drafts"
ROUNDS = "specpair_spec_decode_rounds"


def panels() -> Panels:
    return [*_numbers(), *_acceptance(), *_rounds(), *ahead.panels(), *several.panels()]


def _numbers() -> Panels:
    """One row with the current numbers."""
    return [
        number(
            "Acceptance rate",
            "Share of the proposed tokens that were accepted, since the coordinator started.",
            Query(f"sum({ACCEPTED}_total) / (sum({PROPOSED}_total) > 0)"),
            unit=RATIO,
            decimals=1,
        ),
        number(
            "Tokens per round",
            "Output tokens per round, without the first token: mean over the outputs that had proposals.",
            Query("sum(specpair_request_tokens_per_round_sum) / (sum(specpair_request_tokens_per_round_count) > 0)"),
        ),
        number(
            "Proposed per round",
            "Mean number of tokens in a proposal.",
            Query(f"sum({PROPOSED}_total) / (sum({DRAFTS}_total) > 0)"),
        ),
        number(
            "Speedup measured",
            "Tokens per second, as a multiple of recent plain rounds; none after five idle minutes.",
            Query("specpair_speculation_speedup_ratio", is_instant=True),
            unit=TIMES,
        ),
        number(
            "Speedup predicted",
            "Theorem 3.8 of Leviathan et al., with the acceptance and the costs of the same rounds.",
            Query("specpair_speculation_predicted_speedup_ratio", is_instant=True),
            unit=TIMES,
        ),
        number("Draft up", "1 while the coordinator reaches the draft.", Query("specpair_draft_up"), decimals=0),
    ]


def _acceptance() -> Panels:
    return [
        lines(
            "Acceptance rate",
            "Share of the proposed tokens that were accepted.",
            Query(_ratio(), "all"),
            unit=RATIO,
            highest=1,
        ),
        buckets(
            "Acceptance rate of requests",
            "Number of outputs by their acceptance rate.",
            "specpair_request_acceptance_rate",
            unit=RATIO,
        ),
        bars(
            "Acceptance by position",
            "Share of the tokens proposed at each position that were accepted, since the coordinator started. A token "
            "is accepted only if all before it are.",
            Query(
                _ordered(
                    f"sum by (position) ({ACCEPTED}_per_pos_total) / (sum by (position) ({PROPOSED}_per_pos_total) > 0)"
                ),
                "{{position}}",
            ),
        ),
        lines(
            "Acceptance by position over time",
            "The same, over time.",
            Query(_ordered(_ratio("position", "_per_pos")), "position {{position}}"),
            unit=RATIO,
            highest=1,
        ),
        lines(
            "Acceptance by drafter and rule",
            "Compare rules or drafters only for the same prompts.",
            Query(_ratio("drafter, rule"), "{{drafter}}, {{rule}}"),
            unit=RATIO,
            highest=1,
        ),
        lines(
            "Tokens per round",
            "Output tokens per round, without the first token, of outputs that had proposals; 1 is the target alone.",
            mean("specpair_request_tokens_per_round", "drafter, rule", "{{drafter}}, {{rule}}"),
        ),
    ]


def _rounds() -> Panels:
    """The speedup, and the parts of a round."""
    return [
        lines(
            "Speedup against plain decoding",
            "Measured, and predicted by Theorem 3.8. Above 1, speculation is faster.",
            Query("specpair_speculation_speedup_ratio", "measured, {{instance}}"),
            Query("specpair_speculation_predicted_speedup_ratio", "predicted, {{instance}}"),
            unit=TIMES,
        ),
        lines(
            "Best K now",
            "Tokens per proposal that give the most tokens per second at the present load, by the costs of passes and "
            "calls and by recent acceptance; 0 if none pay.",
            Query("specpair_speculation_best_num_tokens", "best K, {{instance}}"),
        ),
        lines(
            "Gain to expect",
            "Tokens per second with the best K, as a multiple of those without proposals.",
            Query("specpair_speculation_expected_gain_ratio", "expected, {{instance}}"),
            unit=TIMES,
        ),
        lines(
            "Acceptance that pays",
            "From this acceptance on a first token is worth its time at the present load. Above 100 % none can be.",
            Query("specpair_speculation_break_even_acceptance", "break-even, {{instance}}"),
            unit=RATIO,
        ),
        lines(
            "Proposed tokens per round",
            "Mean length of proposals: requested, or chosen by the coordinator.",
            Query(
                f"sum by (drafter, rule) (rate({PROPOSED}_total[$__rate_interval]))"
                f" / (sum by (drafter, rule) (rate({DRAFTS}_total[$__rate_interval])) > 0)",
                "{{drafter}}, {{rule}}",
            ),
        ),
        lines(
            "Rounds",
            "draft: with a proposal; plain: without, on purpose; fallback: without, because the draft did not answer.",
            Query(f"sum by (kind) (rate({ROUNDS}_total[$__rate_interval]))", "{{kind}}"),
            unit=PER_SECOND,
            is_stacked=True,
        ),
        lines(
            "Where the time of a round goes",
            "Mean over all rounds; rounds without proposals take no draft time.",
            Query(
                "sum by (part) (rate(specpair_round_time_seconds_sum[$__rate_interval]))"
                ' / scalar(sum(rate(specpair_round_time_seconds_count{part="verify"}[$__rate_interval])) > 0)',
                "{{part}}",
            ),
            unit=SECONDS,
            is_stacked=True,
        ),
    ]


def _ratio(by: str = "", part: str = "") -> str:
    """Share of the proposed tokens that were accepted, over time; no value without proposals."""
    grouping = f"by ({by}) " if by else ""
    accepted, proposed = (
        f"sum {grouping}(rate({name}{part}_total[$__rate_interval]))" for name in (ACCEPTED, PROPOSED)
    )
    return f"{accepted} / ({proposed} > 0)"


def _ordered(expr: str) -> str:
    """Positions in the order of numbers. Grafana keeps that of Prometheus, which compares labels as text, one after the
    other: a label of the positions with one digit, whose name comes before `position`, puts them in front of the rest.
    """
    return f'label_replace({expr}, "digits", "1", "position", ".")'
