"""`specpair chat`: a conversation with the pair, line by line."""

import asyncio
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Annotated, Any

import typer
from rich.console import Console

from command.connection import coordinator_at
from command.consoles import console_on, has_colors
from command.failures import WRONG_USE, CommandError, friendly
from command.flags.shared import DEFAULT_ADDRESS, AddressOption, NoColorOption
from command.flags.signature import takes
from command.generation.checked_text import checked_text
from command.generation.conversation import Conversation
from command.generation.flag_names import in_flags
from command.generation.generate import print_summary
from command.generation.painting import ColorPrinter, PlainPrinter
from command.generation.request import completion_request
from command.generation.request_options import request_fields, request_parameters
from command.info import has_encoder
from specpair.errors import NotSupportedError, PromptTooLongError, SpecpairError
from specpair.tracing import trace_metadata
from specpair.v1 import coordinator_service_pb2 as pb

MAX_TOKENS = 512
PROMPT = "> "
NEW, HELP, EXIT = "/new", "/help", "/exit"
COMMANDS = {NEW: "begins a new conversation", HELP: "shows this", EXIT: "ends, as Ctrl-D does"}
LIKE_A_COMMAND = re.compile(r"/[a-z]+\s*")
INFO_TIMEOUT = 10.0

MakePrinter = Callable[[], PlainPrinter | ColorPrinter]


@friendly
@takes(
    request_parameters(
        *("temperature", "top_k", "top_p", "min_p", "seed", "max_tokens", "stop_strings"),
        *("num_speculative_tokens", "num_tree_tokens", "rule", "drafter", "work_ahead"),
        max_tokens=MAX_TOKENS,
    )
)
def chat(
    system: Annotated[
        str | None, typer.Option("--system", help="System message: what the model is told before the conversation.")
    ] = None,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain", help="For models without a chat format: they continue the plain text of all lines and answers."
        ),
    ] = False,
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    no_color: NoColorOption = False,
    **values: Any,
) -> None:
    """Talk with the pair.

    Each line is a message. It is sent with the whole conversation before it, and the answer is streamed. Ctrl-C stops
    the answer, /new begins a new conversation, /help lists the commands, Ctrl-D exits. On a terminal, accepted
    proposals are green and the target's own tokens after proposals blue. A summary of each answer goes to standard
    error. Lines may also come from a pipe or a file.
    """
    options = completion_request("", **request_fields(values))
    if system is not None:
        system = checked_text("--system", os.fsencode(system))
    console, errors = console_on(is_plain=no_color), console_on(is_error=True, is_plain=no_color)
    printer = ColorPrinter if has_colors(console) else PlainPrinter
    with asyncio.Runner() as runner:
        model_name = runner.run(_target_name(address))
        if sys.stdin.isatty():
            keys = f"Ctrl-C stops an answer, {NEW} starts again, {HELP} lists the commands, Ctrl-D exits"
            show_note(errors, f"{model_name}: a line is a message; {keys}")
        conversation = Conversation(system, is_plain=plain)
        talk = Talk(runner, address, options, conversation, lambda: printer(console), errors)
        for line in _lines():
            if line.strip() == EXIT:
                break
            talk.say(line)


class Talk:
    """A running conversation. Its answers run on the loop of `runner`."""

    def __init__(
        self,
        runner: asyncio.Runner,
        address: str,
        options: pb.GenerateTokensRequest,
        conversation: Conversation,
        make_printer: MakePrinter,
        errors: Console,
    ):
        """`options` is a request without its prompt; notes and summaries go to `errors`."""
        self._runner = runner
        self._address = address
        self._options = options
        self._conversation = conversation
        self._make_printer = make_printer
        self._errors = errors

    def say(self, line: str) -> None:
        """Sends a line and prints the answer. The printed part of a stopped answer stays in the conversation.

        A failed answer ends the talk. On a terminal the line is dropped instead, and the person can try another one; so
        is a word that looks like a command and is none.
        """
        if line.strip() == NEW:
            return self._conversation.clear()
        if line.strip() == HELP:
            return self._note(help_text())
        if sys.stdin.isatty() and LIKE_A_COMMAND.fullmatch(line):
            return self._note(
                f"{line.strip()} is no command: {HELP} lists them; with a space before it, it is a message"
            )
        try:
            answer = self._answer(line)
        except (NotSupportedError, SpecpairError, CommandError) as error:
            if not sys.stdin.isatty() or isinstance(error, NotSupportedError):
                raise
            return self._note(f"specpair: {in_flags(str(error))}")
        self._conversation.add(line, answer)

    def _answer(self, line: str) -> str:
        request = pb.GenerateTokensRequest()
        request.CopyFrom(self._options)
        self._conversation.ask(request, line)
        pieces: list[str] = []
        printer = self._make_printer()
        try:
            summary = self._runner.run(_stream(self._address, request, printer, pieces))
            print_summary(self._errors, summary)
        except KeyboardInterrupt:
            printer.finish()
            self._note("stopped")
        except NotSupportedError as error:
            if request.WhichOneof("prompt") != "chat" or not error.message.startswith("chat:"):
                raise
            raise NotSupportedError("the model has no chat format; with --plain it continues plain text") from None
        except PromptTooLongError as error:
            raise CommandError(f"{error.message}; {NEW} begins a new conversation") from None
        return "".join(pieces)

    def _note(self, text: str) -> None:
        show_note(self._errors, text)


def help_text() -> str:
    """The commands, a line each."""
    return "\n".join(f"{name:6}{meaning}" for name, meaning in COMMANDS.items())


async def _stream(
    address: str, request: pb.GenerateTokensRequest, printer: PlainPrinter | ColorPrinter, pieces: list[str]
) -> pb.GenerationSummary:
    """Prints the answer as it arrives; its text goes to `pieces`. Returns its summary."""
    summary = None
    async with coordinator_at(address) as stub:
        async for response in stub.GenerateTokens(request, metadata=trace_metadata()):
            pieces.append(response.text)
            printer.add(response)
            if response.HasField("summary"):
                summary = response.summary
    if summary is None:
        raise CommandError("the answer ended without its summary")
    printer.finish()
    return summary


async def _target_name(address: str) -> str:
    """The target's model; the call also checks that the coordinator answers. Raises CommandError if the target holds no
    conversations."""
    async with coordinator_at(address) as stub:
        pair: pb.GetPairInfoResponse = await stub.GetPairInfo(pb.GetPairInfoRequest(), timeout=INFO_TIMEOUT)
    if has_encoder(pair.target):
        problem = f"{pair.target.model_name} has an encoder and holds no conversation; `specpair generate"
        raise CommandError(f"{problem} --encoder-input TEXT` gives it a text", WRONG_USE)
    return pair.target.model_name or "the target is not reached"


def _lines() -> Iterator[str]:
    """The lines of the input, without empty ones."""
    read = _read_terminal if sys.stdin.isatty() else sys.stdin.buffer.readline
    while data := read():
        line = checked_text("the line", data).rstrip("\r\n")
        if line.strip():
            yield line


def _read_terminal() -> bytes:
    """A line with its line end; Ctrl-C drops the line. Empty at the end of the input."""
    with suppress(ImportError):
        import readline  # noqa: F401 (gives `input` editing and a history)
    try:
        return os.fsencode(input(PROMPT)) + b"\n"
    except KeyboardInterrupt:
        typer.echo()
        return b"\n"
    except EOFError:
        typer.echo()
        return b""


def show_note(errors: Console, text: str) -> None:
    errors.print(text, style="dim", markup=False, soft_wrap=True)
