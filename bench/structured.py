"""Structured outputs: outputs of 50 JSON Schemas at T = 1, all of which must be valid; what masks in the draft add to
acceptance, and what is saved by taking forced text with the verdict.

    python -m bench.structured                      1,000 outputs, in five ways
    python -m bench.structured --ways plain         one of the ways alone
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

from bench.local import with_local_pair
from bench.options import BenchOptions, add_options, positive, read_options
from bench.progress import Progress
from bench.report import Report, Section, Table
from bench.structured_schemas import Schema, schemas
from command.failures import CommandError
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import structured_output_pb2 as so

PROMPT = "A JSON document:\n"
MAX_TOKENS = 1200
COLUMNS = {
    "k|K": "{:d}",
    "masks_in_draft|masks in draft": "{}",
    "takes_forced|takes forced": "{}",
    "output_count|outputs": "{:d}",
    "valid_count|valid": "{:d}",
    "acceptance_rate|acceptance": "{:.3f}",
    "tokens_per_round|tokens/round": "{:.2f}",
    "rounds_per_output|rounds/output": "{:.1f}",
    "forced_share|forced": "{:.2f}",
    "tokens_per_second|tokens/s": "{:.0f}",
}


@dataclass(frozen=True, kw_only=True)
class Way:
    """How outputs are made."""

    k: int | None
    """None for that of the options."""
    masks_in_draft: bool = True
    takes_forced: bool = True

    @property
    def flags(self) -> dict[str, object]:
        return {"--unmasked-drafts": not self.masks_in_draft, "--no-forced-text": not self.takes_forced}


WAYS = {
    "forced": Way(k=None),
    "masked": Way(k=None, takes_forced=False),
    "unmasked": Way(k=None, masks_in_draft=False, takes_forced=False),
    "plain-forced": Way(k=0),
    "plain": Way(k=0, takes_forced=False),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """Outputs made in one way."""

    k: int
    masks_in_draft: bool | None
    """None without a proposal."""
    takes_forced: bool
    output_count: int
    valid_count: int
    """Ended by themselves, parse, and fit their schema."""
    acceptance_rate: float | None
    tokens_per_round: float
    rounds_per_output: float
    forced_share: float
    """Of the tokens, those that came with a verdict because nothing else may follow."""
    tokens_per_second: float
    """Of all outputs, over the time on a clock."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.structured", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--schemas", type=positive, default=50, help="number of schemas (default 50)")
    parser.add_argument("--outputs", type=positive, default=4, help="outputs of each in each way (default 4)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="default all")
    add_options(parser)
    arguments = parser.parse_args()
    options = read_options(arguments)
    asked, k = schemas(arguments.schemas), (arguments.k or (4,))[0]
    report, progress = Report(options), Progress()
    try:
        for name in arguments.ways:
            progress.say(f"[bold]{name}[/]")
            report.add(asyncio.run(measure(options, name, asked, arguments.outputs, k)))
    except CommandError as error:
        raise SystemExit(f"error: {error}") from error
    finally:
        report.finish()


async def measure(options: BenchOptions, name: str, asked: Sequence[Schema], output_count: int, k: int) -> Section:
    """The section of one way: each is saved when it ends."""
    way = WAYS[name]
    row = await row_of(options, way, asked, output_count, k if way.k is None else way.k)
    title = f"Outputs of {len(asked)} JSON Schemas at T = 1, rule block, {options.label}"
    table = Table(title=title, columns=COLUMNS, rows=[row])
    return Section(name=f"structured-{name}", tables=[table], figures={"rows": [row]})


async def row_of(options: BenchOptions, way: Way, asked: Sequence[Schema], output_count: int, k: int) -> Row:
    """Starts a pair, and has it make all outputs."""

    async def work(stub: Any) -> Row:
        started = time.perf_counter()
        results = [one for schema in asked for one in await outputs_of(stub, schema, output_count, k)]
        return summed(way, k, results, time.perf_counter() - started)

    return await with_local_pair(options, work, way.flags)


async def outputs_of(stub: Any, schema: Schema, count: int, k: int) -> list[tuple[bool, pb.GenerationSummary]]:
    """Whether each output is valid, and its numbers."""
    request = pb.GenerateTokensRequest(
        text=PROMPT,
        max_tokens=MAX_TOKENS,
        n=count,
        num_speculative_tokens=k,
        sampling={"seed": 0},  # pyright: ignore[reportArgumentType]
        structured_output=so.StructuredOutput(json_schema=json.dumps(schema)),
    )
    texts = [""] * count
    summaries: list[pb.GenerationSummary] = [pb.GenerationSummary()] * count
    async for response in stub.GenerateTokens(request):
        texts[response.choice_index] += response.text
        if response.HasField("summary"):
            summaries[response.choice_index] = response.summary
    return [(is_valid(schema, text), summary) for text, summary in zip(texts, summaries, strict=True)]


def is_valid(schema: Schema, text: str) -> bool:
    """Whether the text is JSON that the schema allows, by a validator that knows nothing of grammars."""
    try:
        return jsonschema_rs.validator_for(schema, validate_formats=True).is_valid(json.loads(text))
    except ValueError:
        return False


def summed(way: Way, k: int, results: Sequence[tuple[bool, pb.GenerationSummary]], seconds: float) -> Row:
    speculation = [summary.speculation for _, summary in results]
    rounds = sum(one.round_count for one in speculation)
    tokens = sum(summary.completion_token_count for _, summary in results)
    drafted = sum(one.draft_token_count for one in speculation)
    accepted = sum(one.accepted_token_count for one in speculation)
    return Row(
        k=k,
        masks_in_draft=way.masks_in_draft if k else None,
        takes_forced=way.takes_forced,
        output_count=len(results),
        valid_count=sum(valid for valid, _ in results),
        acceptance_rate=accepted / drafted if drafted else None,
        tokens_per_round=(tokens - len(results)) / max(rounds, 1),
        rounds_per_output=rounds / len(results),
        forced_share=sum(one.forced_token_count for one in speculation) / max(tokens, 1),
        tokens_per_second=tokens / seconds,
    )


if __name__ == "__main__":
    main()
