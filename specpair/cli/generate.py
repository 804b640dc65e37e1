"""`specpair generate`: one completion, streamed."""

import asyncio
import os
import sys
from typing import Annotated

import typer
from rich.console import Console

from specpair.cli import options as opt
from specpair.cli.connection import coordinator_at
from specpair.cli.failures import CommandError, friendly
from specpair.cli.painting import ColorPrinter, PlainPrinter
from specpair.cli.results import json_document, summary_line
from specpair.errors import InvalidFieldError
from specpair.options import Encoding, Rule, check_range
from specpair.rpc.messages import encoding_to_proto, rule_to_proto
from specpair.v1 import coordinator_service_pb2 as pb

STDIN = "-"
MAX_UINT32 = 2**32 - 1
MAX_UINT64 = 2**64 - 1


@friendly
def generate(
    prompt: Annotated[str, typer.Argument(help="Text to go on from; - reads it from standard input.")],
    max_tokens: opt.MaxTokensOption = None,
    temperature: opt.TemperatureOption = None,
    top_k: Annotated[
        int | None,
        typer.Option("--top-k", help="Keeps the k likeliest tokens; 0 keeps all.", rich_help_panel=opt.SAMPLING),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            "--top-p", help="Keeps the smallest set of tokens of this probability.", rich_help_panel=opt.SAMPLING
        ),
    ] = None,
    seed: opt.SeedOption = None,
    stop: Annotated[
        list[str] | None, typer.Option("--stop", help="Text that ends the output; may be given several times.")
    ] = None,
    stop_token_id: Annotated[
        list[int] | None,
        typer.Option("--stop-token-id", help="Token that ends the output; may be given several times."),
    ] = None,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on behind the end-of-text token.")] = False,
    chat: Annotated[
        bool, typer.Option("--chat", help="Send the prompt as a user's message in the model's chat format.")
    ] = False,
    num_speculative_tokens: Annotated[
        int | None,
        typer.Option(
            "--num-speculative-tokens",
            help="Tokens proposed per round; 0 switches speculation off. Default: the server's.",
            rich_help_panel=opt.SPECULATION,
        ),
    ] = None,
    rule: Annotated[
        Rule, typer.Option("--rule", help="How proposals are judged; both are exact.", rich_help_panel=opt.SPECULATION)
    ] = Rule.BLOCK,
    encoding: Annotated[
        Encoding,
        typer.Option("--encoding", help="How distributions travel; both are exact.", rich_help_panel=opt.SPECULATION),
    ] = Encoding.SPARSE,
    address: opt.AddressOption = opt.DEFAULT_ADDRESS,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document at the end.")] = False,
    no_color: opt.NoColorOption = False,
) -> None:
    """Generate text with the pair.

    On a terminal, accepted proposals are green, rejected ones red and struck out, and the target's own tokens
    after proposals blue. Standard output gets the text alone, the summary goes to standard error.
    """
    request = completion_request(prompt, is_chat=chat, max_tokens=max_tokens, temperature=temperature, seed=seed)
    if top_k is not None:
        check_range("--top-k", top_k, 0, MAX_UINT32)
        request.sampling.top_k = top_k
    if top_p is not None:
        request.sampling.top_p = top_p
    request.stop_strings.extend(checked_text("--stop", os.fsencode(text)) for text in stop or [])
    for token_id in stop_token_id or []:
        check_range("--stop-token-id", token_id, 0, MAX_UINT32)
        request.sampling.stop_token_ids.append(token_id)
    request.ignore_eos = ignore_eos
    if num_speculative_tokens is not None:
        check_range("--num-speculative-tokens", num_speculative_tokens, 0, MAX_UINT32)
        request.num_speculative_tokens = num_speculative_tokens
    request.rule = rule_to_proto(rule)
    request.encoding = encoding_to_proto(encoding)
    asyncio.run(run_generation(address, request, is_json=json, is_plain=no_color))


def completion_request(
    prompt: str, *, is_chat: bool = False, max_tokens: int | None, temperature: float | None, seed: int | None
) -> pb.GenerateTokensRequest:
    """The message for a prompt. Checks what the message's types cannot hold; all other limits are the server's."""
    request = pb.GenerateTokensRequest(sampling={})
    text = checked_text("prompt", sys.stdin.buffer.read() if prompt == STDIN else os.fsencode(prompt))
    if is_chat:
        request.chat.messages.add(role="user", content=text)
    else:
        request.text = text
    if max_tokens is not None:
        check_range("--max-tokens", max_tokens, 1, MAX_UINT32)
        request.max_tokens = max_tokens
    if temperature is not None:
        request.sampling.temperature = temperature
    if seed is not None:
        check_range("--seed", seed, 0, MAX_UINT64)
        request.sampling.seed = seed
    return request


def checked_text(field: str, data: bytes) -> str:
    """The text of bytes from the terminal, which may be anything. Raises InvalidFieldError."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidFieldError(field, f"is no valid UTF-8 at byte {error.start}") from None


async def run_generation(
    address: str, request: pb.GenerateTokensRequest, *, is_json: bool = False, is_plain: bool = False
) -> None:
    """Streams a completion to standard output. Raises SpecpairError or CommandError."""
    console = Console(highlight=False)
    is_colored = not is_plain and not is_json and _takes_colors(console)
    request.include_rejected = is_colored
    printer = ColorPrinter(console) if is_colored else PlainPrinter(console)
    pieces: list[str] = []
    token_ids: list[int] = []
    summary: pb.GenerationSummary | None = None
    async with coordinator_at(address) as stub:
        async for response in stub.GenerateTokens(request):
            pieces.append(response.text)
            token_ids += [token.id for token in response.tokens]
            if response.HasField("summary"):
                summary = response.summary
            if not is_json:
                printer.add(response)
    if summary is None:
        raise CommandError("the answer ended without its summary")
    if is_json:
        typer.echo(json_document("".join(pieces), token_ids, summary))
        return
    printer.finish()
    Console(stderr=True, highlight=False).print(summary_line(summary), style="dim", soft_wrap=True)


def _takes_colors(console: Console) -> bool:
    return console.is_terminal and not console.is_dumb_terminal and not os.environ.get("NO_COLOR")
