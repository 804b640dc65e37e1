"""`python -m bench.beams`: passes of the target that beam search takes, with and without a draft; a table, then one
JSON line.

Prompts are the beginnings of held-out files: the same weights give the same counts, except for near-ties. Times are not
compared. The outputs of every K are compared with those of K = 0.
"""

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
LENGTHS = (0, 2, 4, 8)
COLUMNS = {
    "num_beams|beams": "{}",
    "k|K": "{}",
    "passes": "{}",
    "plain_passes|passes at K = 0": "{}",
    "ratio": "{:.3f}",
    "differing|other outputs": "{}",
}


@dataclass(frozen=True, kw_only=True)
class Searched:
    """One beam search."""

    tokens: tuple[int, ...]
    """Of the best beam."""
    passes: int
    """Of the target, the one that reads the prompt included."""


async def search(stub: CoordinatorServiceStub, prompt: str, num_beams: int, length: int, max_tokens: int) -> Searched:
    request = pb.GenerateTokensRequest(
        text=prompt, max_tokens=max_tokens, num_beams=num_beams, num_speculative_tokens=length
    )
    tokens: list[int] = []
    passes = 0
    async for response in stub.GenerateTokens(request):
        tokens += [token.id for token in response.tokens]
        passes = 1 + response.summary.speculation.round_count
    return Searched(tokens=tuple(tokens), passes=passes)


async def measure_beams(options: BenchOptions, progress: Progress) -> Section:
    """The section of the report."""
    prompts = held_out_prompts(options.prompts)
    rows: list[dict[str, object]] = []

    async def measure(stub: CoordinatorServiceStub) -> None:
        with progress.over(len(WIDTHS) * len(LENGTHS) * len(prompts), "searches") as advance:
            for num_beams in WIDTHS:
                found: dict[int, list[Searched]] = {length: [] for length in LENGTHS}
                for length in LENGTHS:
                    for prompt in prompts:
                        advance(f"{num_beams} beams, K = {length}")
                        found[length].append(await search(stub, prompt, num_beams, length, options.max_tokens))
                rows.extend(row_of(num_beams, length, found[length], found[0]) for length in LENGTHS)

    await with_local_pair(options, measure)
    table = Table(title=f"passes of beam search: {options.label}", columns=COLUMNS, rows=rows)
    return Section(name="beams", tables=[table], figures={"rows": rows})


def row_of(num_beams: int, length: int, found: list[Searched], plain: list[Searched]) -> dict[str, object]:
    passes, plain_passes = (sum(one.passes for one in some) for some in (found, plain))
    return {
        "num_beams": num_beams,
        "k": length,
        "passes": passes,
        "plain_passes": plain_passes,
        "ratio": passes / plain_passes,
        "differing": sum(one.tokens != other.tokens for one, other in zip(found, plain, strict=True)),
    }


async def measure_alone(options: BenchOptions, progress: Progress) -> list[Section]:
    return [await measure_beams(options, progress)]


if __name__ == "__main__":
    run_alone("beams", __doc__, measure_alone)
