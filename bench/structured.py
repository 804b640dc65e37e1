"""Structured outputs: outputs of 50 JSON Schemas at T = 1, all of which must be valid, and what masks in the draft add
to acceptance.

    python -m bench.structured                      1,000 outputs, half of them with masks in the draft
"""

import argparse
import asyncio
import json
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
    "masks_in_draft": "{}",
    "output_count|outputs": "{:d}",
    "valid_count|valid": "{:d}",
    "acceptance_rate|acceptance": "{:.3f}",
    "tokens_per_round|tokens/round": "{:.2f}",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """Outputs with the draft masked, or without."""

    masks_in_draft: bool
    output_count: int
    valid_count: int
    """Ended by themselves, parse, and fit their schema."""
    acceptance_rate: float
    tokens_per_round: float


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.structured", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--schemas", type=positive, default=50, help="number of schemas (default 50)")
    parser.add_argument("--outputs", type=positive, default=10, help="outputs of each, with and without (default 10)")
    add_options(parser)
    arguments = parser.parse_args()
    options = read_options(arguments)
    report = Report(options)
    try:
        report.add(
            asyncio.run(measure(options, schemas(arguments.schemas), arguments.outputs, (arguments.k or (4,))[0]))
        )
    except CommandError as error:
        raise SystemExit(f"error: {error}") from error
    finally:
        report.finish()


async def measure(options: BenchOptions, asked: Sequence[Schema], output_count: int, k: int) -> Section:
    """The section of the report."""
    progress, rows = Progress(), []
    for is_masked in (True, False):
        progress.say(f"[bold]masks in the draft: {is_masked}[/]")
        flags: dict[str, object] = {"--unmasked-drafts": not is_masked}

        async def work(stub: Any) -> list[tuple[bool, pb.GenerationSummary]]:
            return [one for schema in asked for one in await outputs_of(stub, schema, output_count, k)]

        rows.append(row_of(is_masked, await with_local_pair(options, work, flags)))
    title = f"Outputs of {len(asked)} JSON Schemas at T = 1, K = {k}, rule block, {options.label}"
    return Section(name="structured", tables=[Table(title=title, columns=COLUMNS, rows=rows)], figures={"rows": rows})


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


def row_of(is_masked: bool, results: Sequence[tuple[bool, pb.GenerationSummary]]) -> Row:
    speculation = [summary.speculation for _, summary in results]
    rounds = sum(one.round_count for one in speculation)
    tokens = sum(summary.completion_token_count for _, summary in results)
    return Row(
        masks_in_draft=is_masked,
        output_count=len(results),
        valid_count=sum(valid for valid, _ in results),
        acceptance_rate=sum(one.accepted_token_count for one in speculation)
        / max(sum(one.draft_token_count for one in speculation), 1),
        tokens_per_round=tokens / max(rounds, 1),
    )


if __name__ == "__main__":
    main()
