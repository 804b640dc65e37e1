"""`specpair generate`: a completion, streamed."""

import asyncio
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console

from command.connection import coordinator_at
from command.consoles import console_on, has_colors
from command.failures import CommandError, friendly
from command.flags.shared import (
    DEFAULT_ADDRESS,
    AddressOption,
    ChatOption,
    EncoderInputOption,
    NoColorOption,
    OptionalPromptArgument,
)
from command.flags.signature import takes
from command.generation.painting import ColorPrinter, InTurn, PlainPrinter
from command.generation.request import completion_request
from command.generation.request_options import request_fields, request_parameters
from command.generation.results import Completion, json_document, summary_line
from specpair.client.resuming import generate_tokens
from specpair.tracing import trace_metadata
from specpair.v1 import coordinator_service_pb2 as pb


@friendly
@takes(request_parameters())
def generate(
    prompt: OptionalPromptArgument = None,
    chat: ChatOption = False,
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    encoder_input: EncoderInputOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document at the end.")] = False,
    no_color: NoColorOption = False,
    **values: Any,
) -> None:
    """Generate text with the pair.

    On a terminal, accepted proposals are green, rejected ones red and struck out, and the target's own tokens
    after proposals blue. Standard output gets only the text; the summary goes to standard error.
    """
    request = completion_request(prompt, encoder_input=encoder_input, is_chat=chat, **request_fields(values))
    asyncio.run(run_generation(address, request, is_json=json, is_plain=no_color))


async def run_generation(
    address: str, request: pb.GenerateTokensRequest, *, is_json: bool = False, is_plain: bool = False
) -> None:
    """Streams a completion to standard output. Raises SpecpairError or CommandError."""
    console = console_on(is_plain=is_plain)
    is_colored = not is_json and has_colors(console)
    request.include_rejected = is_colored and not request.num_beams
    completion = Completion(max(request.n, 1))
    on_summary = partial(print_summary, console_on(is_error=True, is_plain=is_plain))
    printer = InTurn(ColorPrinter if is_colored else PlainPrinter, console, completion.n, on_summary)
    async with coordinator_at(address) as stub:
        async for response in generate_tokens(stub, request, metadata=trace_metadata()):
            if is_json:
                completion.add(response)
            else:
                printer.add(response)
    if not (completion if is_json else printer).is_finished:
        raise CommandError("the answer ended without its summary")
    if is_json:
        typer.echo(json_document(completion))


def print_summary(errors: Console, summary: pb.GenerationSummary) -> None:
    """A line on standard error: dim, unless the output is lossy."""
    style = "bold yellow" if summary.speculation.lossy else "dim"
    errors.print(summary_line(summary), style=style, soft_wrap=True)
