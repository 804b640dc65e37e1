"""Trees of tokens, several drafts, drafts that are accelerated themselves, and beam searches."""

from deploy.grafana.panels import PER_SECOND, RATIO, Panels, Query, lines, mean, row

MERGED = "specpair_merged"
GUESSES = "specpair_draft"


def panels() -> Panels:
    return [row("Trees, several drafts, drafts of drafts"), *_trees(), *_merged(), *_own(), *_beams()]


def _trees() -> Panels:
    return [
        lines(
            "Tokens of a tree",
            "Mean number of tokens in a proposal that was a tree, and of its path that was accepted.",
            mean("specpair_tree_tokens", legend="proposed"),
            mean("specpair_tree_accepted_tokens", legend="accepted"),
        )
    ]


def _merged() -> Panels:
    """Where proposals of several drafts are merged."""
    return [
        lines(
            "Acceptance by draft",
            "Of merged proposals: the share of each draft's tokens that was accepted.",
            Query(
                f"sum by (draft) (rate({MERGED}_accepted_tokens_total[$__rate_interval]))"
                f" / (sum by (draft) (rate({MERGED}_draft_tokens_total[$__rate_interval])) > 0)",
                "{{draft}}",
            ),
            unit=RATIO,
            highest=1,
        ),
        lines(
            "Rounds by draft",
            "Rounds of several drafts in which each proposed, and those that did not wait for it.",
            Query(f"sum by (draft) (rate({MERGED}_rounds_total[$__rate_interval]))", "{{draft}}"),
            Query(f"sum by (draft) (rate({MERGED}_late_rounds_total[$__rate_interval]))", "{{draft}}, late"),
            unit=PER_SECOND,
        ),
    ]


def _own() -> Panels:
    """Where --own-draft accelerates the draft model."""
    return [
        lines(
            "Guesses for the draft model",
            "Tokens that were guessed, and those that the model then drew, each of which saved it a forward pass.",
            Query(f"sum(rate({GUESSES}_guessed_tokens_total[$__rate_interval]))", "guessed"),
            Query(f"sum(rate({GUESSES}_accepted_guesses_total[$__rate_interval]))", "right"),
            unit=PER_SECOND,
        ),
        lines(
            "Time of guessing",
            "Share of the time in which drafts guess.",
            Query(f"avg(rate({GUESSES}_guessing_seconds_total[$__rate_interval]))", "guessing"),
            unit=RATIO,
        ),
    ]


def _beams() -> Panels:
    return [
        lines(
            "Beam searches",
            "Searches that ended, the target's passes for them, and the tokens by which they continued their beams.",
            *(
                Query(f"sum(rate(specpair_beam_{name}_total[$__rate_interval]))", name)
                for name in ("searches", "passes", "steps")
            ),
            unit=PER_SECOND,
        )
    ]
