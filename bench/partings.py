"""Where greedy texts of llama.cpp and specpair part, and how near the two tokens are there.

The same weights in another order of additions give the same text up to a near-tie: a large gap between the two tokens
means that the weights are not the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.arena import Arena
from bench.case import Peer, Weights
from bench.comparison_rows import Row
from bench.figures import of_case
from bench.interleaving import group
from bench.measurement import Measurement
from specpair.exactness.judgement import parting


@dataclass(frozen=True, kw_only=True)
class Parting:
    """Two greedy texts of a prompt that differ."""

    weights: Weights
    prompt: int
    at: int
    """Tokens that are the same."""
    gap: float | None
    """How much likelier llama.cpp finds its own next token than specpair's, in nats; None if specpair's is none of its
    20 likeliest."""


async def partings_of(arena: Arena, measurements: Sequence[Measurement]) -> list[Parting]:
    """Of the plain greedy texts with one prompt at a time, in the first repetition."""
    found: list[Parting] = []
    for one in measurements:
        case, turn = one.turn.case, one.turn
        is_plain = case.peer is Peer.LLAMA and case.num_speculative_tokens == 0
        if not is_plain or case.block != (0.0, 1) or turn.repetition > 0:
            continue
        ours = of_case(measurements, case.plain())[turn.prompt, turn.repetition].token_ids[0]
        theirs = one.output.token_ids[0]
        at = parting(theirs, ours)
        if case.weights is not None and at < min(len(theirs), len(ours)):
            (prompt,) = group(arena.prompts, turn)
            gap = await gap_of(arena, case.weights, [*prompt, *ours[:at]], theirs[at], ours[at])
            found.append(Parting(weights=case.weights, prompt=turn.prompt, at=at, gap=gap))
    return found


async def gap_of(arena: Arena, weights: Weights, text: list[int], theirs: int, ours: int) -> float | None:
    assert arena.llama is not None, "a text of llama.cpp is compared"
    likeliest = await arena.llama.log_probabilities(weights, text)
    return likeliest[theirs] - likeliest[ours] if ours in likeliest else None


def said(partings: Sequence[Parting], rows: Sequence[Row]) -> list[str]:
    """A sentence for each kind of weights of llama.cpp whose greedy texts were compared."""
    compared = [row for row in rows if row.peer == Peer.LLAMA and row.num_speculative_tokens == 0]
    return [
        f"{row.case}: {row.same_text:.0%} of its greedy texts are those of specpair at K = 0"
        + "".join(f"; one parts {place(parting)}" for parting in partings if parting.weights is row.weights)
        for row in compared
        if row.same_text is not None and row.batch_size == 1
    ]


def place(parting: Parting) -> str:
    gap = "at no near-tie" if parting.gap is None else f"at a gap of {parting.gap:.3f} nats"
    return f"after {parting.at} tokens {gap}"
