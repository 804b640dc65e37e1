"""`python -m bench.paper`: Table 2 of the paper that speculative decoding comes from, with our T5 pair beside it.

Leviathan et al., "Fast Inference from Transformers via Speculative Decoding" (2023): T5-XXL translates and summarises,
a smaller T5 proposes. For each temperature the table has the acceptance (alpha), the best number of proposed tokens
(gamma, our K), and the improvement in time: as theory expects it (Table 4 has these) and as measured.

Ours are the tiny pair of `models/t5` on its own task, through three processes, by the token rule, which is the paper's.
Its forward passes take no time to speak of. So by default both models are paced: a pass of the target takes 100 ms,
one of the draft a twentieth of it, about the cost ratio of T5-base to T5-XXL. `--pace 0` takes the models as they are.
"""

import argparse
import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bench.local import with_local_pair
from bench.options import BenchOptions
from bench.progress import Progress
from bench.report import Table, busy_note, measured, rich_table, wide_console, write
from models.t5.task import sentences
from specpair.theory.published import TABLE_4
from specpair.theory.speedup import optimum, walltime_factor
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub
from specpair.v1.sequence_service_pb2 import PassCost

MODELS = Path(__file__).parents[1] / "models" / "t5"
TEMPERATURES = (0, 1)
PROBE_K = 5
"""Tokens per proposal while the acceptance is measured."""
LONGEST_K = 16
MAX_TOKENS = 64
SEED = 1_000_003
"""Of sentences that no training has seen."""
PACE_MS = 100.0
COST_RATIO = 0.05
COLUMNS = {
    "task": "{}",
    "target": "{}",
    "draft": "{}",
    "temperature|temp": "{}",
    "num_speculative_tokens|gamma (K)": "{}",
    "acceptance|alpha": "{:.2f}",
    "cost_ratio|c": "{:.2f}",
    "expected|expected": "{:.1f}X",
    "measured|measured": "{:.1f}X",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the table."""

    task: str
    target: str
    draft: str
    temperature: int
    num_speculative_tokens: int
    acceptance: float
    cost_ratio: float
    expected: float
    measured: float


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to run."""

    target: str
    draft: str
    sentence_count: int
    pace_ms: float
    """Least time of a pass of the target; 0 for the models as they are."""
    is_saved: bool


def published() -> list[Row]:
    """The paper's rows, in its order."""
    return [
        Row(
            task=row.task,
            target="T5-XXL",
            draft=row.draft,
            temperature=row.temperature,
            num_speculative_tokens=row.num_speculative_tokens,
            acceptance=row.acceptance,
            cost_ratio=row.cost_ratio,
            expected=row.printed_expected,
            measured=row.printed_measured,
        )
        for row in TABLE_4
    ]


async def own_rows(stub: CoordinatorServiceStub, settings: Settings, progress: Progress) -> list[Row]:
    """Ours, one for each temperature."""
    info = await stub.GetPairInfo(pb.GetPairInfoRequest())
    ratio = cost_ratio(info.draft.pass_costs, info.target.pass_costs)
    texts = [" ".join(pair.source) for pair in islice(sentences(SEED), settings.sentence_count)]
    rows: list[Row] = []
    with progress.over(3 * len(TEMPERATURES) * len(texts), "translations") as advance:
        for temperature in TEMPERATURES:
            probes = [await one(stub, text, temperature, PROBE_K, i, advance) for i, text in enumerate(texts)]
            acceptance = acceptance_of([summary.speculation for summary in probes])
            best = optimum(acceptance, ratio, limit=LONGEST_K).num_speculative_tokens
            plain: list[pb.GenerationSummary] = []
            fast: list[pb.GenerationSummary] = []
            for i, text in enumerate(texts):  # in turns
                plain.append(await one(stub, text, temperature, 0, i, advance))
                fast.append(await one(stub, text, temperature, best, i, advance))
            rows.append(
                Row(
                    task="made-up language",
                    target=f"{info.target.parameter_count / 1e6:.2f} M",
                    draft=f"{info.draft.parameter_count / 1e6:.2f} M",
                    temperature=temperature,
                    num_speculative_tokens=best,
                    acceptance=acceptance,
                    cost_ratio=ratio,
                    expected=walltime_factor(acceptance, best, ratio),
                    measured=tokens_per_second(fast) / tokens_per_second(plain),
                )
            )
    return rows


async def one(
    stub: CoordinatorServiceStub, text: str, temperature: int, k: int, seed: int, advance: Callable[[str], None]
) -> pb.GenerationSummary:
    """The numbers of one translation."""
    advance(f"temperature {temperature}, K = {k}")
    request = pb.GenerateTokensRequest(
        encoder_text=text,
        max_tokens=MAX_TOKENS,
        num_speculative_tokens=k,
        rule=sampling_pb2.ACCEPTANCE_RULE_TOKEN,
        work_ahead=pb.WORK_AHEAD_MODE_OFF,
        sampling=sampling_pb2.SamplingOptions(temperature=temperature, seed=seed),
    )
    *_, last = [response async for response in stub.GenerateTokens(request)]
    return last.summary


def acceptance_of(outputs: Sequence[pb.SpeculationSummary]) -> float:
    """The share of judged tokens that were accepted. A token is judged if those before it were accepted."""
    accepted = judged = 0
    for output in outputs:
        places = list(zip(output.drafted_per_position, accepted_places(output), strict=True))
        before = [drafted for drafted, _ in places[:1]] + [count for _, count in places[:-1]]
        accepted += sum(count for _, count in places)
        judged += sum(min(drafted, earlier) for (drafted, _), earlier in zip(places, before, strict=True))
    return accepted / judged if judged else 0.0


def accepted_places(output: pb.SpeculationSummary) -> Iterator[int]:
    """Accepted tokens at each place at which some were proposed."""
    counts = output.accepted_per_position
    return (counts[i] if i < len(counts) else 0 for i in range(len(output.drafted_per_position)))


def cost_ratio(draft: Sequence[PassCost], target: Sequence[PassCost]) -> float:
    """A pass of the draft over one token, divided by one of the target."""
    return draft[0].seconds / target[0].seconds


def tokens_per_second(outputs: Sequence[pb.GenerationSummary]) -> float:
    """After the first tokens."""
    tokens = sum(summary.completion_token_count - 1 for summary in outputs)
    return tokens / sum((summary.total_time_us - summary.time_to_first_token_us) / 1e6 for summary in outputs)


async def measure(settings: Settings, progress: Progress) -> list[Row]:
    pace = settings.pace_ms
    options = BenchOptions(
        target=settings.target,
        draft=settings.draft,
        dtype="float32",
        service_flags={"--pace": pace} if pace else {},
        draft_flags={"--pace": pace * COST_RATIO} if pace else {},
    )
    return await with_local_pair(options, lambda stub: own_rows(stub, settings, progress))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default=str(MODELS / "target"), help="folder of the target")
    parser.add_argument("--draft", default=str(MODELS / "draft"), help="folder of the draft")
    parser.add_argument("--sentences", type=int, default=12, help="sentences of each temperature and K")
    parser.add_argument("--pace", type=float, default=PACE_MS, metavar="MS", help="of a pass of the target; 0 for none")
    parser.add_argument("--no-save", action="store_true", help="print only")
    given = parser.parse_args()
    settings = Settings(
        target=given.target,
        draft=given.draft,
        sentence_count=given.sentences,
        pace_ms=given.pace,
        is_saved=not given.no_save,
    )
    note = busy_note(os.getloadavg()[0])
    rows = asyncio.run(measure(settings, Progress()))
    console = wide_console()
    console.print(rich_table(Table(title="ours", columns=COLUMNS, rows=rows)))
    console.print(rich_table(Table(title="Leviathan et al., Tables 2 and 4", columns=COLUMNS, rows=published())))
    for line in filter(None, [note]):
        console.print(f"Note: {line}", style="italic", soft_wrap=True)
    if settings.is_saved:
        notes = [note] if note else []
        write("paper", measured(rows=rows, pace_ms=given.pace, sentences=given.sentences, notes=notes))


if __name__ == "__main__":
    main()
