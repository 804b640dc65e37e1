"""Working ahead: what the draft prepares while the target verifies, and what that saves."""

from deploy.grafana.panels import PER_SECOND, SECONDS, Panels, Query, bars, lines, mean, row

ROUNDS = "specpair_ahead_rounds_total"
BLOCKS = "specpair_ahead_blocks_total"
VERIFICATIONS = "specpair_ahead_verifications_total"


def panels() -> Panels:
    return [row("Working ahead"), *_hits(), *_cost(), *_gain()]


def _hits() -> Panels:
    """How often the right proposal is there."""
    return [
        bars(
            "Hit rate by accepted tokens",
            "Share of the rounds whose proposal was prepared when the verdict came, by the number of tokens that the "
            "round before accepted, since the coordinator started.",
            Query(
                f'sum by (accepted) ({ROUNDS}{{outcome="hit"}}) / (sum by (accepted) ({ROUNDS}) > 0)', "{{accepted}}"
            ),
        ),
        lines(
            "Where proposals came from",
            "hit: prepared when the verdict came; late: being made; miss: others were prepared; plain: none was there "
            "in time, and the target went on without one.",
            Query(f"sum by (outcome) (rate({ROUNDS}[$__rate_interval]))", "{{outcome}}"),
            unit=PER_SECOND,
            is_stacked=True,
        ),
    ]


def _cost() -> Panels:
    """What is prepared in vain."""
    return [
        lines(
            "Prepared proposals for each round that used one",
            "Proposals that drafts sent, over those that were used.",
            Query(
                f'sum(rate({BLOCKS}[$__rate_interval])) / (sum(rate({BLOCKS}{{fate="used"}}[$__rate_interval])) > 0)',
                "proposals",
            ),
        ),
        lines(
            "Proposals that were not used",
            "unused: the verdict was another one; stale: their round was over when they came.",
            Query(f'sum by (fate) (rate({BLOCKS}{{fate!="used"}}[$__rate_interval]))', "{{fate}}"),
            unit=PER_SECOND,
            is_stacked=True,
        ),
        lines(
            "The draft's cycle",
            "Proposals that were ready when the next call came, and those that were begun for each call that followed.",
            mean("specpair_draft_ahead_ready", legend="ready"),
            Query(
                "sum(rate(specpair_draft_ahead_blocks_total[$__rate_interval]))"
                " / (sum(rate(specpair_draft_ahead_calls_total[$__rate_interval])) > 0)",
                "begun",
            ),
        ),
        lines(
            "Tokens drawn ahead for each hit",
            "Tokens that drafts drew for proposals that might be asked for, over the calls that found theirs ready: "
            "the cost of working ahead.",
            Query(
                "sum(rate(specpair_draft_ahead_tokens_total[$__rate_interval]))"
                ' / (sum(rate(specpair_draft_ahead_calls_total{result="hit"}[$__rate_interval])) > 0)',
                "tokens",
            ),
        ),
    ]


def _gain() -> Panels:
    """What it saves."""
    return [
        lines(
            "Verifications sent before the verdict",
            "met: they began with the verdict that they depended on; not_met: it was another one.",
            Query(f"sum by (result) (rate({VERIFICATIONS}[$__rate_interval]))", "{{result}}"),
            unit=PER_SECOND,
            is_stacked=True,
        ),
        lines(
            "Rounds that the target began by itself",
            "Rounds whose call was known before the verdict of the round before, since no draft has to propose: used, "
            "the call came; dropped, the output had ended or the round failed.",
            Query("sum by (outcome) (rate(specpair_target_continuations_total[$__rate_interval]))", "{{outcome}}"),
            unit=PER_SECOND,
            is_stacked=True,
        ),
        lines(
            "Hidden time of a round",
            "Computation of the draft for which a round did not wait: mean over the rounds that the draft worked ahead "
            "for.",
            Query(
                "sum(rate(specpair_ahead_hidden_seconds_total[$__rate_interval]))"
                f" / (sum(rate({ROUNDS}[$__rate_interval])) > 0)",
                "hidden",
            ),
            unit=SECONDS,
        ),
    ]
