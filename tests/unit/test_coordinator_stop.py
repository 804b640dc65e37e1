"""Stop strings against a reference that sees the text character by character."""

from hypothesis import given
from hypothesis import strategies as st

from coordinator.stop import StopStrings

LETTERS = st.sampled_from("ab")
STOPS = st.lists(st.text(LETTERS, min_size=1, max_size=4), max_size=4)


def reference(text: str, stops: list[str]) -> tuple[str, bool]:
    """The text up to the first stop string, taken as soon as one is complete; the longest where several are."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return text[: end - max(map(len, complete))], True
    return text, False


@given(st.lists(st.text(LETTERS, max_size=5), max_size=12), STOPS)
def test_the_outcome_does_not_depend_on_how_the_text_was_cut(pieces: list[str], stops: list[str]) -> None:
    strings = StopStrings(stops)
    out = "".join(strings.push(piece) for piece in pieces)
    is_stopped = strings.is_stopped
    assert (out + strings.flush(), is_stopped) == reference("".join(pieces), stops)


@given(st.lists(st.text(LETTERS, max_size=5), max_size=12), STOPS)
def test_it_stops_with_the_piece_that_completes_the_stop_string(pieces: list[str], stops: list[str]) -> None:
    strings = StopStrings(stops)
    for index, piece in enumerate(pieces):
        strings.push(piece)
        assert strings.is_stopped == reference("".join(pieces[: index + 1]), stops)[1]


@given(st.lists(st.text(LETTERS, max_size=5), max_size=12), STOPS)
def test_nothing_is_held_back_that_cannot_become_a_stop_string(pieces: list[str], stops: list[str]) -> None:
    strings = StopStrings(stops)
    given_out = ""
    for index, piece in enumerate(pieces):
        given_out += strings.push(piece)
        if strings.is_stopped:
            return
        held = "".join(pieces[: index + 1])[len(given_out) :]
        assert held == "" or any(stop.startswith(held) and stop != held for stop in stops)


def test_without_stop_strings_everything_passes_at_once() -> None:
    strings = StopStrings(())
    assert (strings.push("a\n"), strings.flush(), strings.is_stopped) == ("a\n", "", False)


def test_nothing_comes_after_the_stop() -> None:
    strings = StopStrings(["END"])
    assert [strings.push(piece) for piece in ("a E", "N", "D b", "c")] == ["a ", "", "", ""]
    assert strings.flush() == ""
