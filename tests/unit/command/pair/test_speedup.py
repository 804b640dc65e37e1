"""The line that says what speculation gains."""

import pytest

from command.pair.speedup import Run, Speedup
from specpair.v1 import coordinator_service_pb2 as pb


def run(
    seconds: float,
    *,
    tokens: int = 100,
    rounds: int = 100,
    drafted: int = 0,
    accepted: int = 0,
    draft_us: int = 0,
    adaptive: bool = True,
) -> Run:
    speculation = pb.SpeculationSummary(
        round_count=rounds,
        draft_round_count=rounds if drafted else 0,
        draft_token_count=drafted,
        accepted_token_count=accepted,
        acceptance_rate=accepted / drafted if drafted else 0.0,
        tokens_per_round=tokens / rounds if rounds else 0.0,
        draft_time_us=draft_us,
        adaptive=adaptive,
    )
    summary = pb.GenerationSummary(
        completion_token_count=tokens, total_time_us=round(seconds * 1e6), speculation=speculation
    )
    return Run(summary=summary, token_ids=list(range(tokens)))


def test_the_line_begins_with_the_ratio_of_this_run() -> None:
    plain, fast = run(2.0), run(1.25, rounds=40, drafted=100, accepted=60)
    line = Speedup(plain=[plain, plain], speculative=[fast, fast]).line()
    assert line.startswith("speedup 1.60x · 50.0 tokens/s without speculation, 80.0 with it")
    assert "acceptance rate 60% · 2.50 tokens per round · same output both ways (100 tokens)" in line
    assert "does not pay" not in line


def test_turns_are_compared_with_each_other() -> None:
    plain, fast = [run(1.0), run(4.0), run(2.0)], [run(0.5), run(2.0), run(1.0)]
    assert Speedup(plain=plain, speculative=fast).ratio == pytest.approx(2.0)


def test_a_loss_says_what_would_have_to_change() -> None:
    plain, slow = run(2.0), run(2.5, rounds=50, drafted=200, accepted=50, draft_us=500_000)
    line = Speedup(plain=[plain], speculative=[slow]).line()
    assert line.startswith("speedup 0.80x")
    assert "a round takes 2.50 times as long as one token without speculation, 20% of it in the draft" in line
    assert "gives 2.00 tokens" in line and "(from 2.50 tokens per round)" in line


def test_where_nothing_was_proposed_a_fixed_number_shows_what_is_missing() -> None:
    plain, fixed = run(2.0), run(3.0, rounds=50, drafted=200, accepted=50)
    line = Speedup(plain=[plain], speculative=[run(2.1)], fixed=fixed).line()
    assert "no tokens proposed: adaptive K found that they would not pay" in line
    assert "a round takes 3.00 times" in line


def test_other_outputs_are_named() -> None:
    plain, fast = run(2.0), run(1.0, rounds=40, drafted=100, accepted=60)
    other = Run(summary=fast.summary, token_ids=[*range(7), 0, *range(8, 100)])
    assert "outputs differ from token 7 on" in Speedup(plain=[plain], speculative=[other]).line()
    shorter = Run(summary=fast.summary, token_ids=fast.token_ids[:30])
    assert "outputs differ from token 30 on" in Speedup(plain=[plain], speculative=[shorter]).line()
    assert "output" not in Speedup(plain=[plain], speculative=[other], is_greedy=False).line()


@pytest.mark.parametrize(("tokens", "said"), [(0, "0 tokens"), (1, "1 token"), (2, "2 tokens")])
def test_an_answer_that_is_too_short_has_no_speedup(tokens: int, said: str) -> None:
    short, slower = (run(seconds, tokens=tokens, rounds=max(tokens - 1, 0)) for seconds in (1.0, 2.0))
    line = f"no speedup measured: an answer of {said} is too short; it takes 3 at least"
    assert Speedup(plain=[short], speculative=[slower], fixed=slower).line() == line
    assert Speedup(plain=[short], speculative=[]).line() == line, "the first answer was enough to know"
    assert Speedup(plain=[run(1.0)], speculative=[run(1.0)], fixed=short).line() == line


def test_nothing_is_said_of_adaptive_k_where_k_is_fixed() -> None:
    line = Speedup(plain=[run(2.0)], speculative=[run(2.0, adaptive=False)]).line()
    assert "no tokens proposed" in line and "adaptive" not in line
