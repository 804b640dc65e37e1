"""How often the draft had the right proposal ready, by what came out of the round before.

A prepared proposal is for one outcome of a round: how many tokens were accepted, and the target's own token after them.
After fewer than K accepted tokens that token is a correction, after K of them a bonus token.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.apart.cells import Cell
from bench.specpair_peer import TIMEOUT, request_for
from specpair.options import WorkAhead
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub

READY = (pb.AHEAD_OUTCOME_HIT, pb.AHEAD_OUTCOME_LATE)
K = 4
"""Of the rounds that are counted."""
COLUMNS = {
    "draft": "{:g}",
    "temperature|T": "{:g}",
    "rule": "{}",
    **{f"after_{n}|{n} accepted": "{}" for n in range(K)},
    f"after_{K}|all {K}": "{}",
}


@dataclass(frozen=True, kw_only=True)
class HitRow:
    """The hit rates of one draft, temperature and rule."""

    draft: float
    temperature: float
    rule: str
    rounds: tuple[int, ...]
    """Rounds with work ahead after 0 .. K accepted tokens."""
    hits: tuple[int, ...]
    """Those whose proposal was there, or being made."""

    def shown(self) -> dict[str, object]:
        """The row as it is printed: the rate after each accepted count, with the number of rounds."""
        rates = {
            f"after_{n}": f"{hits / rounds:.2f} ({rounds})"
            for n, (hits, rounds) in enumerate(zip(self.hits, self.rounds, strict=True))
            if rounds
        }
        return {"draft": self.draft, "temperature": self.temperature, "rule": self.rule, **rates}


async def hit_row(stub: CoordinatorServiceStub, cell: Cell, prompts: Sequence[list[int]], max_tokens: int) -> HitRow:
    """Works ahead on one prompt after the other. All counts are 0 if the service never does."""
    case = cell.case(WorkAhead.ON, K)
    outputs: list[list[pb.RoundReport]] = []
    for seed, prompt in enumerate(prompts):
        request = request_for(case, prompt, max_tokens, seed)
        request.include_rounds = True
        answers = stub.GenerateTokens(request, timeout=TIMEOUT)
        outputs.append([answer.round async for answer in answers if answer.HasField("round")])
    rounds, hits = count_hits(outputs)
    pair = cell.pair
    return HitRow(draft=pair.acceptance, temperature=pair.temperature, rule=cell.rule.value, rounds=rounds, hits=hits)


def count_hits(outputs: Iterable[Sequence[pb.RoundReport]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Rounds with work ahead, and hits among them, after 0 .. K accepted tokens; from the reports of each output's
    rounds. Rounds after a shorter proposal do not count: their accepted count has another meaning."""
    rounds, hits = Counter[int](), Counter[int]()
    for reports in outputs:
        for before, after in pairwise(reports):
            if len(before.proposed) == K and after.ahead != pb.AHEAD_OUTCOME_UNSPECIFIED:
                accepted = sum(token.accepted for token in before.proposed)
                rounds[accepted] += 1
                hits[accepted] += after.ahead in READY
    return tuple(rounds[n] for n in range(K + 1)), tuple(hits[n] for n in range(K + 1))
