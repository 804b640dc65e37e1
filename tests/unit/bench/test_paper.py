"""The paper's table, and what of it is measured of our pair."""

import pytest

from bench.paper import COLUMNS, acceptance_of, cost_ratio, published, tokens_per_second
from specpair.theory.speedup import expected_tokens
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.sequence_service_pb2 import PassCost


def test_the_papers_rows_are_those_of_its_table_2() -> None:
    rows = [(row.task, row.draft, row.temperature, row.num_speculative_tokens, row.measured) for row in published()]
    assert len(rows) == 12
    assert rows[0] == ("EnDe", "T5-small", 0, 7, 3.4) and rows[9] == ("CNNDM", "T5-small", 1, 5, 2.3)
    assert {column.partition("|")[0] for column in COLUMNS} == set(vars(published()[0]))


def test_acceptance_is_that_of_judged_tokens() -> None:
    """With a constant acceptance, as many are judged at each place as were accepted before it."""
    rounds, acceptance, k = 10_000, 0.7, 5
    places = [round(rounds * acceptance**place) for place in range(1, k + 1)]
    output = pb.SpeculationSummary(drafted_per_position=[rounds] * k, accepted_per_position=places)
    assert acceptance_of([output, output]) == pytest.approx(acceptance, abs=1e-3)
    assert 1 + sum(places) / rounds == pytest.approx(expected_tokens(acceptance, k), abs=1e-3)
    shorter = pb.SpeculationSummary(drafted_per_position=[10, 4], accepted_per_position=[8])
    assert acceptance_of([shorter]) == pytest.approx(8 / 14)
    assert acceptance_of([]) == 0.0


def test_speed_and_costs() -> None:
    costs = [PassCost(token_count=1, seconds=0.002)], [PassCost(token_count=1, seconds=0.02)]
    assert cost_ratio(*costs) == pytest.approx(0.1)
    summary = pb.GenerationSummary(completion_token_count=11, total_time_us=3_000_000, time_to_first_token_us=1_000_000)
    assert tokens_per_second([summary, summary]) == pytest.approx(5.0)
