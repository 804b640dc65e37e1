"""Stop strings against a reference that sees the text character by character."""

from hypothesis import given
from hypothesis import strategies as st

from coordinator.outputs.stop import StopStrings

LETTERS = st.sampled_from("ab")
STOPS = st.lists(st.text(LETTERS, min_size=1, max_size=4), max_size=4)


def reference(text: str, stops: list[str], exempt_length: int = 0) -> tuple[str, bool]:
    """The text up to the first stop string, taken as soon as one is complete; the longest where several are.

    What is complete within the first `exempt_length` characters is text like any other.
    """
    for end in range(exempt_length + 1, len(text) + 1):
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


@given(st.lists(st.text(LETTERS, max_size=5), max_size=12), STOPS, st.integers(0, 12))
def test_what_is_complete_while_nothing_may_stop_is_text_like_any_other(
    pieces: list[str], stops: list[str], exempt_count: int
) -> None:
    strings = StopStrings(stops)
    out = "".join(strings.push(piece, may_stop=i >= exempt_count) for i, piece in enumerate(pieces))
    is_stopped = strings.is_stopped
    exempt_length = len("".join(pieces[:exempt_count]))
    assert (out + strings.flush(), is_stopped) == reference("".join(pieces), stops, exempt_length)


def test_a_stop_string_that_began_before_anything_could_stop_counts_when_it_is_complete() -> None:
    strings = StopStrings(["ab", "abXY"])
    assert strings.push("1ab", may_stop=False) == "1"
    assert strings.push("X") == "" and not strings.is_stopped
    assert strings.push("Y2") == "" and strings.is_stopped


def test_without_stop_strings_everything_passes_at_once() -> None:
    strings = StopStrings(())
    assert (strings.push("a\n"), strings.flush(), strings.is_stopped) == ("a\n", "", False)


def test_nothing_comes_after_the_stop() -> None:
    strings = StopStrings(["END"])
    assert [strings.push(piece) for piece in ("a E", "N", "D b", "c")] == ["a ", "", "", ""]
    assert strings.flush() == ""
