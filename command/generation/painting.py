"""Generated text on a terminal, coloured by where its tokens came from (Leviathan et al. 2023, Figure 1)."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from specpair.v1 import coordinator_service_pb2 as pb

STYLES: dict[int, str] = {
    pb.TOKEN_ORIGIN_ACCEPTED: "green",
    pb.TOKEN_ORIGIN_CORRECTION: "blue",
    pb.TOKEN_ORIGIN_BONUS: "blue",
    pb.TOKEN_ORIGIN_TARGET: "",
    pb.TOKEN_ORIGIN_FORCED: "dim",
    pb.TOKEN_ORIGIN_REJECTED: "red strike",
}
PROMPT_STYLE = "dim"
LOOKAHEAD = 64
"""Characters that may pass before a token that does not appear in the text is skipped."""

# Model output may contain escape sequences and changes of text direction, which a terminal obeys. So control characters
# are shown as their pictures, or as the replacement character if they have none.
_CONTROLS = {code: 0x2400 + code for code in range(32) if code not in (9, 10)} | {127: 0x2421}
_CONTROLS |= {code: 0xFFFD for code in (*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))}


@dataclass(frozen=True)
class _Piece:
    """A token on its way to the screen."""

    text: str
    style: str
    is_rejected: bool


class InTurn:
    """Prints the outputs of a request one after the other, whatever the order of their rounds.

    The current output is printed as it arrives; the others wait. With several outputs, each has a heading.
    """

    def __init__(
        self,
        make_printer: "type[PlainPrinter] | type[ColorPrinter]",
        console: Console,
        n: int,
        on_summary: Callable[[pb.GenerationSummary], None],
    ):
        self._make_printer = make_printer
        self._console = console
        self._on_summary = on_summary
        self._waiting: list[deque[pb.GenerateTokensResponse]] = [deque() for _ in range(n)]
        self._turn = 0
        self._printer: PlainPrinter | ColorPrinter | None = None

    @property
    def is_finished(self) -> bool:
        """Whether all outputs have come to their end."""
        return self._turn == len(self._waiting)

    def add(self, response: pb.GenerateTokensResponse) -> None:
        self._waiting[response.choice_index].append(response)
        while not self.is_finished and self._waiting[self._turn]:
            self._print(self._waiting[self._turn].popleft())

    def _print(self, response: pb.GenerateTokensResponse) -> None:
        if self._printer is None:
            self._printer = self._make_printer(self._console)
            if len(self._waiting) > 1:
                self._console.print(f"--- output {self._turn + 1} of {len(self._waiting)} ---")
        self._printer.add(response)
        if response.HasField("summary"):
            self._printer.finish()
            self._printer = None
            self._turn += 1
            self._on_summary(response.summary)


class PlainPrinter:
    """Only the text: for pipes and files. On a terminal, control characters are replaced."""

    def __init__(self, console: Console):
        self._console = console

    def add(self, response: pb.GenerateTokensResponse) -> None:
        text = response.text.translate(_CONTROLS) if self._console.is_terminal else response.text
        self._console.file.write(text)
        self._console.file.flush()

    def finish(self) -> None:
        self._console.file.write("\n")
        self._console.file.flush()


class ColorPrinter:
    """Text in the colours of its tokens; rejected proposals are struck out where they were replaced.

    The text of a response may come later than its tokens (it is held back while it may become a stop string), and a
    character may take several tokens. So tokens wait in a queue until their text has arrived.
    """

    def __init__(self, console: Console):
        self._console = console
        self._queue: deque[_Piece] = deque()
        self._text = ""
        self._loose_style = ""
        """For text between recognised tokens: the style of the last token without its own text."""

    def add(self, response: pb.GenerateTokensResponse) -> None:
        if not response.tokens:  # the prompt, repeated before the first token
            return self._paint(response.text, PROMPT_STYLE)
        self._text += response.text
        self._queue.extend(_pieces(response))
        while self._queue and self._paint_next(self._queue[0]):
            self._queue.popleft()

    def finish(self) -> None:
        self._paint(self._text, self._loose_style)
        self._console.print()

    def _paint_next(self, piece: _Piece) -> bool:
        """Whether the piece is finished."""
        if piece.is_rejected:
            self._paint(piece.text, piece.style)
        elif not piece.text:
            self._loose_style = piece.style
        elif (start := self._text.find(piece.text)) >= 0:
            self._paint(self._text[:start], self._loose_style)
            self._paint(piece.text, piece.style)
            self._text = self._text[start + len(piece.text) :]
        elif len(self._text) < len(piece.text) + LOOKAHEAD:
            return False
        return True

    def _paint(self, text: str, style: str) -> None:
        if text:
            self._console.print(Text(text.translate(_CONTROLS), style=style), end="", soft_wrap=True)


def _pieces(response: pb.GenerateTokensResponse) -> list[_Piece]:
    """The round's tokens in reading order: rejected tokens come before their replacement."""
    committed = [_Piece(token.text, STYLES.get(token.origin, ""), False) for token in response.tokens]
    rejected = [_Piece(token.text, STYLES[pb.TOKEN_ORIGIN_REJECTED], True) for token in response.rejected]
    forced_count = sum(token.origin == pb.TOKEN_ORIGIN_FORCED for token in response.tokens)
    place = max(len(committed) - forced_count - 1, 0)
    return [*committed[:place], *rejected, *committed[place:]]
