"""Trees against chains: the fastest of each, as a multiple of the target alone in the same turns."""

from bench.case import Case
from bench.interleaving import turns
from bench.measurement import Counts, Measurement, Output
from bench.options import BenchOptions
from bench.trees import SPEED_COLUMNS, WAYS, cases_of, plain, speed_row, ways_of
from specpair.options import Rule

WAY = (1.0, Rule.TOKEN)


def speed_of(case: Case) -> float:
    """Tokens per second: chains are fastest at K = 5, trees at depth 3."""
    if case.num_speculative_tokens == 0:
        return 10.0
    best, most = (3, 24.0) if case.num_tree_tokens else (5, 20.0)
    return most - abs((case.num_speculative_tokens or 0) - best)


def output(case: Case, factor: float) -> Output:
    speed = speed_of(case) * factor
    times = {"first_token_seconds": 0.1, "seconds": 60 / speed, "output_seconds": 60 / speed}
    return Output(token_ids=[[0] * 61], tokens=60, round_seconds=[], counts=Counts(), **times)


def test_the_fastest_chain_and_the_fastest_tree_are_compared() -> None:
    cases = [plain(WAY[0]), *cases_of(*WAY)]
    order = turns(cases, 2, 2, seed=1)
    measurements = [
        Measurement(turn=turn, output=output(turn.case, 1.0 + turn.prompt + 0.1 * turn.repetition)) for turn in order
    ]
    row = speed_row(measurements, *WAY)
    assert (row["chain_k"], row["depth"]) == (5, 3)
    shown = {name.partition("|")[0]: form.format(row[name.partition("|")[0]]) for name, form in SPEED_COLUMNS.items()}
    assert shown["chain"] == "2.00 [2.00, 2.00]" and shown["tree"] == "2.40 [2.40, 2.40]"
    assert shown["ratio"] == "1.20 [1.20, 1.20]"


def test_only_the_ways_that_are_asked_for_are_measured() -> None:
    assert ways_of(BenchOptions(target="", draft="")) == list(WAYS)
    asked = BenchOptions(target="", draft="", temperatures=(1.0,), rules=("block", "coupled"))
    assert ways_of(asked) == [(1.0, Rule.COUPLED), (1.0, Rule.BLOCK)]
