"""Colours on the terminal: every character once, in the colour of its token."""

import io

import pytest
from rich.console import Console

from command.generation.painting import ColorPrinter, InTurn, PlainPrinter
from specpair.v1 import coordinator_service_pb2 as pb

ACCEPTED, CORRECTION, TARGET = pb.TOKEN_ORIGIN_ACCEPTED, pb.TOKEN_ORIGIN_CORRECTION, pb.TOKEN_ORIGIN_TARGET
GREEN, BLUE, RED = "\x1b[32m", "\x1b[34m", "\x1b[9;31m"
DIM = "\x1b[2m"
END = "\x1b[0m"
Round = tuple[str, list[tuple[str, "pb.TokenOrigin"]], list[str]]


def response(text: str, tokens: list[tuple[str, "pb.TokenOrigin"]], rejected: list[str]) -> pb.GenerateTokensResponse:
    message = pb.GenerateTokensResponse(text=text)
    for token_text, origin in tokens:
        message.tokens.add(text=token_text, origin=origin)
    for token_text in rejected:
        message.rejected.add(text=token_text, origin=pb.TOKEN_ORIGIN_REJECTED)
    return message


def paint(*rounds: Round) -> str:
    file = io.StringIO()
    printer = ColorPrinter(Console(file=file, force_terminal=True, color_system="standard", width=80, no_color=False))
    for text, tokens, rejected in rounds:
        printer.add(response(text, tokens, rejected))
    printer.finish()
    return file.getvalue()


def test_each_origin_has_its_colour_and_rejections_stand_before_their_correction() -> None:
    out = paint(("Hi", [("Hi", TARGET)], []), (" my dog", [(" my", ACCEPTED), (" dog", CORRECTION)], [" cat"]))
    assert out == f"Hi{GREEN} my{END}{RED} cat{END}{BLUE} dog{END}\n"


def test_forced_tokens_stand_behind_the_correction_that_they_follow() -> None:
    forced = pb.TOKEN_ORIGIN_FORCED
    out = paint(("a b:x", [("a", ACCEPTED), (" b", CORRECTION), (":", forced), ("x", forced)], [" c"]))
    assert out == f"{GREEN}a{END}{RED} c{END}{BLUE} b{END}{DIM}:{END}{DIM}x{END}\n"


def test_text_that_is_held_back_is_painted_when_it_comes() -> None:
    out = paint(("", [("a", ACCEPTED), ("b", CORRECTION)], []), ("abc", [("c", ACCEPTED)], []))
    assert out == f"{GREEN}a{END}{BLUE}b{END}{GREEN}c{END}\n"


def test_a_character_of_several_tokens_takes_the_colour_of_its_last() -> None:
    out = paint(("€b", [("", ACCEPTED), ("", CORRECTION), ("b", ACCEPTED)], []))
    assert out == f"{BLUE}€{END}{GREEN}b{END}\n"


def test_a_token_whose_text_never_comes_loses_no_text() -> None:
    text = "x" * 200
    out = paint(("", [("unseen", ACCEPTED)], []), (text, [(text, CORRECTION)], []))
    assert out == f"{BLUE}{text}{END}\n"


def test_escape_sequences_are_shown_and_not_obeyed() -> None:
    out = paint(("\x1b[2J\n", [("\x1b[2J\n", TARGET)], []))
    assert out == "\u241b[2J\n\n"


@pytest.mark.parametrize("text", ["a\x1b[2J€\t[red]x[/red]\n", "a" * 300])
def test_plain_output_is_the_text_and_nothing_else(text: str) -> None:
    file = io.StringIO()
    printer = PlainPrinter(Console(file=file))
    printer.add(response(text, [(text, ACCEPTED)], ["no"]))
    printer.finish()
    assert file.getvalue() == text + "\n"


def test_the_prompt_is_dim_and_no_token_is_looked_for_in_it() -> None:
    out = paint(("my dog", [], []), (" my", [(" my", TARGET)], []), (" dog", [(" dog", ACCEPTED)], []))
    assert out == f"\x1b[2mmy dog{END} my{GREEN} dog{END}\n"


def test_outputs_are_printed_one_after_the_other() -> None:
    file = io.StringIO()
    seeds: list[int] = []
    printer = InTurn(PlainPrinter, Console(file=file), 3, lambda summary: seeds.append(summary.seed))
    for index, text, is_last in [(2, "e", True), (0, "a", False), (1, "c", False), (0, "b", True), (1, "d", True)]:
        assert not printer.is_finished
        message = response(text, [(text, ACCEPTED)], [])
        message.choice_index = index
        if is_last:
            message.summary.seed = index
        printer.add(message)
        if (index, text) == (0, "a"):
            assert file.getvalue() == "--- output 1 of 3 ---\na", "the one whose turn it is does not wait"
    assert printer.is_finished and seeds == [0, 1, 2]
    assert file.getvalue() == "--- output 1 of 3 ---\nab\n--- output 2 of 3 ---\ncd\n--- output 3 of 3 ---\ne\n"
