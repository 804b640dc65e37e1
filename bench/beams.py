"""`python -m bench.beams`: what a draft is worth to beam search: passes of the target, and time; a table, then one JSON
line.

Prompts are the beginnings of held-out files: the same weights give the same counts, except for near-ties. The searches
of one prompt take turns, so that their times can be compared; the outputs of every K are compared with those of K = 0.
"""

from collections import defaultdict
from dataclasses import dataclass

from bench.alone import run_alone
from bench.local import with_local_pair
from bench.options import BenchOptions
from bench.progress import Progress
from bench.prompts import held_out_prompts
from bench.report import Section, Table
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub

WIDTHS = (1, 2, 4, 8)
LENGTHS = (0, 1, 2, 4, 8, None)
"""Tokens by which the draft continues the beams; None leaves them to the server."""
WARM_UP = 2
"""Searches of each prompt before those that count."""
COLUMNS = {
    "num_beams|beams": "{}",
    "k|K": "{}",
    "passes": "{}",
    "plain_passes|passes at K = 0": "{}",
    "ratio": "{:.3f}",
    "speed|speed of K = 0": "{:.2f}",
    "differing|other outputs": "{}",
}


@dataclass(frozen=True, kw_only=True)
class Searched:
    """One beam search."""

    tokens: tuple[int, ...]
    """Of the best beam."""
    passes: int
    """Of the target, the one that reads the prompt included."""
    seconds: float


async def search(
    stub: CoordinatorServiceStub, prompt: str, num_beams: int, length: int | None, max_tokens: int
) -> Searched:
    request = pb.GenerateTokensRequest(
        text=prompt, max_tokens=max_tokens, num_beams=num_beams, num_speculative_tokens=length
    )
    responses = [response async for response in stub.GenerateTokens(request)]
    summary = responses[-1].summary
    return Searched(
        tokens=tuple(token.id for response in responses for token in response.tokens),
        passes=1 + summary.speculation.round_count,
        seconds=summary.total_time_us / 1e6,
    )


async def measure_beams(options: BenchOptions, progress: Progress) -> Section:
    """The section of the report."""
    prompts = held_out_prompts(options.prompts)
    rows: list[dict[str, object]] = []

    async def measure(stub: CoordinatorServiceStub) -> None:
        with progress.over(len(WIDTHS) * options.repetitions * len(prompts) * len(LENGTHS), "searches") as advance:
            for num_beams in WIDTHS:
                found: dict[int | None, list[Searched]] = defaultdict(list)
                for prompt in prompts * WARM_UP:  # the server learns which K is fastest
                    await search(stub, prompt, num_beams, None, options.max_tokens)
                for prompt in prompts * options.repetitions:
                    for length in LENGTHS:
                        advance(f"{num_beams} beams, K = {name_of(length)}")
                        found[length].append(await search(stub, prompt, num_beams, length, options.max_tokens))
                rows.extend(row_of(num_beams, length, found[length], found[0]) for length in LENGTHS)

    await with_local_pair(options, measure)
    table = Table(title=f"beam search: {options.label}", columns=COLUMNS, rows=rows)
    return Section(name="beams", tables=[table], figures={"rows": rows})


def row_of(num_beams: int, length: int | None, found: list[Searched], plain: list[Searched]) -> dict[str, object]:
    passes, plain_passes = (sum(one.passes for one in some) for some in (found, plain))
    seconds, plain_seconds = (sum(one.seconds for one in some) for some in (found, plain))
    return {
        "num_beams": num_beams,
        "k": name_of(length),
        "passes": passes,
        "plain_passes": plain_passes,
        "ratio": passes / plain_passes,
        "seconds": seconds,
        "speed": plain_seconds / seconds,
        "differing": sum(one.tokens != other.tokens for one, other in zip(found, plain, strict=True)),
    }


def name_of(length: int | None) -> str:
    return "adaptive" if length is None else f"{length}"


async def measure_alone(options: BenchOptions, progress: Progress) -> list[Section]:
    return [await measure_beams(options, progress)]


if __name__ == "__main__":
    run_alone("beams", __doc__, measure_alone)
