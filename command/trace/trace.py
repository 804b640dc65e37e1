"""`specpair trace`: where a request spent its time, as a file for ui.perfetto.dev."""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from command.connection import coordinator_at
from command.consoles import console_on
from command.failures import CommandError, friendly
from command.flags.shared import DEFAULT_ADDRESS, AddressOption, ChatOption, EncoderInputOption, OptionalPromptArgument
from command.flags.signature import takes
from command.generation.generate import print_summary
from command.generation.request import completion_request
from command.generation.request_options import request_fields, request_parameters
from command.trace.spans import trace_document
from specpair.tracing import trace_metadata
from specpair.v1 import coordinator_service_pb2 as pb

STDOUT = Path("-")
MAX_TOKENS = 128


@friendly
@takes(
    request_parameters(
        *("temperature", "top_k", "top_p", "min_p", "seed", "max_tokens", "ignore_eos", "n"),
        *("num_speculative_tokens", "num_tree_tokens", "rule", "drafter", "drafts", "merge", "work_ahead"),
        max_tokens=MAX_TOKENS,
    )
)
def trace(
    prompt: OptionalPromptArgument = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="File to write, or overwrite; - is standard output.")
    ] = Path("trace.json"),
    chat: ChatOption = False,
    *,
    encoder_input: EncoderInputOption = None,
    address: AddressOption = DEFAULT_ADDRESS,
    **values: Any,
) -> None:
    """Write a trace of one request: when coordinator, draft, target and network worked, round by round.

    Open the file at https://ui.perfetto.dev or chrome://tracing. Each round shows what was proposed, with the
    probabilities of draft and target, and what was accepted.
    """
    request = completion_request(
        prompt, encoder_input=encoder_input, is_chat=chat, include_rounds=True, **request_fields(values)
    )
    responses = asyncio.run(_run(address, request))
    write_trace(output, responses)
    for response in responses:
        if response.HasField("summary"):
            print_summary(console_on(is_error=True), response.summary)
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
