"""Hit rates by the accepted count of the round before."""

from bench.apart.hits import COLUMNS, HitRow, K, count_hits
from specpair.v1 import coordinator_service_pb2 as pb

HIT, LATE, MISS, NONE = (
    pb.AHEAD_OUTCOME_HIT,
    pb.AHEAD_OUTCOME_LATE,
    pb.AHEAD_OUTCOME_MISS,
    pb.AHEAD_OUTCOME_UNSPECIFIED,
)


def report(accepted: int, ahead: pb.AheadOutcome, proposed: int = K) -> pb.RoundReport:
    tokens = [pb.ProposedToken(id=1, accepted=place < accepted) for place in range(proposed)]
    return pb.RoundReport(proposed=tokens, ahead=ahead)


def test_a_round_counts_for_what_was_accepted_before_it() -> None:
    output = [report(2, NONE), report(K, HIT), report(2, MISS), report(2, LATE), report(0, MISS)]
    rounds, hits = count_hits([output])
    assert rounds == (0, 0, 3, 0, 1)
    assert hits == (0, 0, 2, 0, 0)


def test_outputs_do_not_follow_each_other() -> None:
    assert count_hits([[report(2, NONE)], [report(1, HIT)]]) == ((0,) * (K + 1), (0,) * (K + 1))


def test_rounds_without_work_ahead_and_after_shorter_proposals_do_not_count() -> None:
    outputs = [[report(2, NONE), report(2, NONE), report(1, NONE)], [report(1, NONE, proposed=K - 1), report(1, HIT)]]
    assert count_hits(outputs) == ((0,) * (K + 1), (0,) * (K + 1))


def test_a_row_shows_rates_where_there_are_rounds() -> None:
    row = HitRow(draft=0.85, temperature=1.0, rule="coupled", rounds=(10, 0, 0, 0, 8), hits=(3, 0, 0, 0, 6))
    shown = row.shown()
    assert shown["after_0"] == "0.30 (10)"
    assert shown[f"after_{K}"] == "0.75 (8)"
    assert "after_1" not in shown
    assert set(shown) <= {column.partition("|")[0] for column in COLUMNS}
