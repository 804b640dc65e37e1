"""Where the tokens of a round came from."""

from coordinator.outputs.output_part import Origin
from coordinator.outputs.round import Round
from coordinator.peers import RunCounts


def origins_of(judged: Round) -> list[Origin]:
    """Of the accepted tokens and the next token, in each round of a run, and of those that the last one forces."""
    verdict, own = judged.judged, Origin.TARGET
    if judged.drafted_count:
        own = Origin.BONUS if judged.is_whole else Origin.CORRECTION
    run = [origin for counts in verdict.run_rounds for origin in _origins_in_run(counts)]
    forced = [Origin.FORCED] * len(verdict.forced_ids)
    return [*[Origin.ACCEPTED] * verdict.accepted_count, own, *run, *forced]


def _origins_in_run(counts: RunCounts) -> list[Origin]:
    """The same for a later round of a run."""
    own = Origin.BONUS if counts.is_whole else Origin.CORRECTION
    return [*[Origin.ACCEPTED] * counts.accepted_count, own if counts.proposed_count else Origin.TARGET]
