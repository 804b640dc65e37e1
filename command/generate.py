"""`specpair generate`: a completion, streamed."""

import asyncio
import os
from typing import Annotated

import typer
from rich.console import Console

from command import generate_options as own
from command import options as opt
from command.connection import coordinator_at
from command.failures import CommandError, friendly
from command.painting import ColorPrinter, InTurn, PlainPrinter
from command.request import completion_request
from command.results import Completion, json_document, summary_line
from specpair.client.resuming import generate_tokens
from specpair.tracing import trace_metadata
from specpair.v1 import coordinator_service_pb2 as pb


@friendly
def generate(
    prompt: Annotated[str, typer.Argument(help="Text to go on from; - reads it from standard input.")],
    chat: Annotated[
        bool, typer.Option("--chat", help="Send the prompt as a user's message in the model's chat format.")
    ] = False,
    temperature: opt.TemperatureOption = None,
    top_k: own.TopKOption = None,
    top_p: own.TopPOption = None,
    min_p: own.MinPOption = None,
    repetition_penalty: own.RepetitionPenaltyOption = None,
    presence_penalty: own.PresencePenaltyOption = None,
    frequency_penalty: own.FrequencyPenaltyOption = None,
    logit_bias: own.LogitBiasOption = None,
    allowed_token_id: own.AllowedTokenIdOption = None,
    banned_token_id: own.BannedTokenIdOption = None,
    seed: opt.SeedOption = None,
    max_tokens: opt.MaxTokensOption = None,
    min_tokens: own.MinTokensOption = None,
    stop: own.StopOption = None,
    stop_token_id: own.StopTokenIdOption = None,
    ignore_eos: own.IgnoreEosOption = False,
    n: own.NOption = None,
    best_of: own.BestOfOption = None,
    logprobs: own.LogprobsOption = None,
    prompt_logprobs: own.PromptLogprobsOption = None,
    echo: own.EchoOption = False,
    num_speculative_tokens: own.CountOption = None,
    rule: own.RuleOption = None,
    drafter: own.DrafterOption = None,
    encoding: own.EncodingOption = None,
    lenience: own.LenienceOption = None,
    address: opt.AddressOption = opt.DEFAULT_ADDRESS,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document at the end.")] = False,
    no_color: opt.NoColorOption = False,
) -> None:
    """Generate text with the pair.

    On a terminal, accepted proposals are green, rejected ones red and struck out, and the target's own tokens
    after proposals blue. Standard output gets the text alone, the summary goes to standard error.
    """
    request = completion_request(
        prompt,
        is_chat=chat,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        logit_bias=logit_bias,
        allowed_token_ids=allowed_token_id,
        banned_token_ids=banned_token_id,
        seed=seed,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        stop_strings=stop,
        stop_token_ids=stop_token_id,
        ignore_eos=ignore_eos,
        n=n,
        best_of=best_of,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        echo=echo,
        num_speculative_tokens=num_speculative_tokens,
        rule=rule,
        drafter=drafter,
        encoding=encoding,
        lenience=lenience,
    )
    asyncio.run(run_generation(address, request, is_json=json, is_plain=no_color))


async def run_generation(
    address: str, request: pb.GenerateTokensRequest, *, is_json: bool = False, is_plain: bool = False
) -> None:
    """Streams a completion to standard output. Raises SpecpairError or CommandError."""
    console = Console(highlight=False)
    is_colored = not is_plain and not is_json and takes_colors(console)
    request.include_rejected = is_colored
    completion = Completion(max(request.n, 1))
    printer = InTurn(ColorPrinter if is_colored else PlainPrinter, console, completion.n, print_summary)
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


def print_summary(summary: pb.GenerationSummary) -> None:
    """A line on standard error: dim, unless the output is lossy."""
    style = "bold yellow" if summary.speculation.lossy else "dim"
    Console(stderr=True, highlight=False).print(summary_line(summary), style=style, soft_wrap=True)


def takes_colors(console: Console) -> bool:
    """Whether a terminal is there that wants colours."""
    return console.is_terminal and not console.is_dumb_terminal and not os.environ.get("NO_COLOR")
