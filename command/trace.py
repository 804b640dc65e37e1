"""`specpair trace`: where the time of a request went, as a file for ui.perfetto.dev."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer

from command import generate_options as own
from command import options as opt
from command.connection import coordinator_at
from command.failures import CommandError, friendly
from command.generate import print_summary
from command.request import completion_request
from command.trace_spans import trace_document
from specpair.tracing import trace_metadata
from specpair.v1 import coordinator_service_pb2 as pb

STDOUT = Path("-")
MAX_TOKENS = 128


@friendly
def trace(
    prompt: Annotated[str, typer.Argument(help="Text to go on from; - reads it from standard input.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="File to write, or overwrite; - is standard output.")
    ] = Path("trace.json"),
    chat: Annotated[
        bool, typer.Option("--chat", help="Send the prompt as a user's message in the model's chat format.")
    ] = False,
    temperature: opt.TemperatureOption = None,
    top_k: own.TopKOption = None,
    top_p: own.TopPOption = None,
    min_p: own.MinPOption = None,
    seed: opt.SeedOption = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", help="Most tokens to generate.", rich_help_panel=opt.SAMPLING)
    ] = MAX_TOKENS,
    ignore_eos: own.IgnoreEosOption = False,
    n: own.NOption = None,
    num_speculative_tokens: own.CountOption = None,
    rule: own.RuleOption = None,
    drafter: own.DrafterOption = None,
    address: opt.AddressOption = opt.DEFAULT_ADDRESS,
) -> None:
    """Write a trace of one request: when coordinator, draft, target and network were at work, round by round.

    Open the file at https://ui.perfetto.dev or chrome://tracing. Each round says what was proposed, with the
    probabilities of draft and target, and what was accepted.
    """
    request = completion_request(
        prompt,
        is_chat=chat,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        max_tokens=max_tokens,
        ignore_eos=ignore_eos,
        n=n,
        num_speculative_tokens=num_speculative_tokens,
        rule=rule,
        drafter=drafter,
        include_rounds=True,
    )
    responses = asyncio.run(_run(address, request))
    write_trace(output, responses)
    for response in responses:
        if response.HasField("summary"):
            print_summary(response.summary)
    if output != STDOUT:
        typer.echo(f"wrote {output}: open it at https://ui.perfetto.dev", err=True)


def write_trace(output: Path, responses: list[pb.GenerateTokensResponse]) -> None:
    """Raises CommandError if the file cannot be written."""
    text = json.dumps(trace_document(responses), ensure_ascii=False)
    if output == STDOUT:
        return typer.echo(text)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{output} cannot be written: {error.strerror}") from None


async def _run(address: str, request: pb.GenerateTokensRequest) -> list[pb.GenerateTokensResponse]:
    async with coordinator_at(address) as stub:
        responses = [response async for response in stub.GenerateTokens(request, metadata=trace_metadata())]
    if not responses or not responses[-1].HasField("summary"):
        raise CommandError("the answer ended without its summary")
    return responses
