"""Calls of each form are read the same, however their text is cut into pieces."""

import json
from itertools import groupby, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coordinator.http.json_end import JsonEnd
from coordinator.http.tool_calls import Found, FoundCall, ToolCallReader
from coordinator.tool_call_form import TOOL_CALL_FORMS, ToolCallForm, ToolCallParser

VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.sampled_from(["", "}", '"', "\\", '}, {"name": "', "}]", "</tool_call>"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "}", '\\"']), inner),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.sampled_from(["name", "a"]), VALUES).map(json.dumps)
CUTS = st.lists(st.integers(0, 200), max_size=10)
WORDS = st.lists(st.sampled_from(["a", " ", "\n", "<tool_", "b c", "\u00a0"]), max_size=5).map("".join)
HERMES = TOOL_CALL_FORMS[ToolCallParser.HERMES]
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
FORMS = st.sampled_from(list(TOOL_CALL_FORMS.values()))


def written(form: ToolCallForm, calls: list[tuple[str, str]]) -> str:
    """The calls as a model writes them."""
    texts = [f"{name}{form.key}{arguments}" for name, arguments in calls]
    if form.repeats:
        return "\n".join(f"{form.begin}{form.opening}{text}{form.closing}{form.end}" for text in texts)
    return f"{form.begin}{form.opening}{(form.following or '').join(texts)}{form.closing}"


@given(form=FORMS, arguments=st.lists(ARGUMENTS, min_size=1, max_size=3), before=st.sampled_from(["", "Hi"]), cuts=CUTS)
def test_what_is_written_is_read(form: ToolCallForm, arguments: list[str], before: str, cuts: list[int]) -> None:
    count = 1 if form.following is None and not form.repeats else len(arguments)
    calls = [(f"f{index}", text) for index, text in enumerate(arguments[:count])]
    text = ("" if form.is_whole else before) + written(form, calls)
    ends = sorted({0, len(text), *(place for place in cuts if place < len(text))})
    reader = ToolCallReader(form)
    found = [*(reader.push(text[a:b]) for a, b in pairwise(ends)), reader.push("", is_last=True)]
    names, pieces = dict[int, str](), dict[int, str]()
    for call in (call for part in found for call in part.calls):
        names[call.index] = call.name or names[call.index]
        pieces[call.index] = pieces.get(call.index, "") + call.arguments
    assert [(names[index], pieces[index]) for index in range(reader.count)] == calls
    assert "".join(part.text for part in found) == ("" if form.is_whole else before)


@given(words=st.lists(WORDS, min_size=1, max_size=3), cuts=CUTS)
@example(words=["a", " a"], cuts=[])
@example(words=["a", " "], cuts=[])
@example(words=["", " a"], cuts=[])
def test_text_beside_calls_is_read_the_same_in_pieces(words: list[str], cuts: list[int]) -> None:
    form = TOOL_CALL_FORMS[ToolCallParser.HERMES]
    text = written(form, [("f", "{}")]).join(words)
    ends = sorted({0, len(text), *(place for place in cuts if place < len(text))})
    reader = ToolCallReader(form)
    found = [*(reader.push(text[a:b]) for a, b in pairwise(ends)), reader.push("", is_last=True)]
    first, *others = words
    expected = first.rstrip(" \n") if others else first
    for place, part in enumerate(others):
        after = part if expected else part.lstrip(" \n")  # white space is content between two texts
        expected += after.rstrip(" \n") if place < len(others) - 1 or not after.strip(" \n") else after
    assert "".join(part.text for part in found) == expected
    assert reader.count == len(others)


@given(
    text=st.lists(st.sampled_from(["Hi", " ", "\n", CALL]), max_size=8).map("".join),
    cuts=CUTS | st.just(list(range(500))),
)
def test_text_around_calls_is_kept(text: str, cuts: list[int]) -> None:
    """But for white space beside them, however it is cut into pieces."""
    whole = ToolCallReader(HERMES).push(text, is_last=True).parts
    reader, ends = ToolCallReader(HERMES), sorted({0, len(text), *(place for place in cuts if place < len(text))})
    found = [part for a, b in pairwise(ends) for part in reader.push(text[a:b]).parts]
    found += reader.push("", is_last=True).parts
    assert texts_of(found) == texts_of(whole)
    assert "".join(texts_of(whole)).split() == text.replace(CALL, " ").split()


def texts_of(parts: list[str | FoundCall]) -> list[str]:
    """The texts, with a space for the calls between them."""
    groups = groupby(parts, key=lambda part: isinstance(part, FoundCall))
    return [" " if are_calls else "".join(map(str, group)) for are_calls, group in groups]


@given(value=VALUES, rest=st.sampled_from(["}", "}]", "}\n</tool_call>"]), cuts=CUTS)
def test_a_value_ends_at_the_brace_around_it(value: object, rest: str, cuts: list[int]) -> None:
    text = json.dumps(value)
    ends = sorted({0, len(text + rest), *(place for place in cuts if place < len(text + rest))})
    end, passed = JsonEnd(), 0
    for a, b in pairwise(ends):
        if (place := end.find((text + rest)[a:b])) is not None:
            assert passed + place == len(text)
            return
        passed += b - a
    pytest.fail("no end was found")


@pytest.mark.parametrize("parser", ToolCallParser)
def test_a_call_that_is_cut_off_has_what_is_there(parser: ToolCallParser) -> None:
    form = TOOL_CALL_FORMS[parser]
    text = written(form, [("f", '{"a": 1')]).removesuffix(form.closing + form.end)
    found = ToolCallReader(form).push(text, is_last=True)
    assert [(call.name, call.arguments) for call in found.calls] == [("f", '{"a": 1')]


@given(form=FORMS, arguments=st.lists(ARGUMENTS, min_size=1, max_size=3), cuts=CUTS)
def test_a_call_is_whole_once_its_arguments_are(form: ToolCallForm, arguments: list[str], cuts: list[int]) -> None:
    """Wherever a text is cut off: what is missing may be the end of a tag, or the last brace of the arguments."""
    count = 1 if form.following is None and not form.repeats else len(arguments)
    text = written(form, [(f"f{index}", arguments[index]) for index in range(count)])
    for end in range(len(text)):
        reader, found = ToolCallReader(form), dict[int, str]()
        places = [0, *sorted(place for place in {*cuts} if 0 < place < end), end]
        for part in [*(reader.push(text[a:b]) for a, b in pairwise(places)), reader.push("", is_last=True)]:
            for call in part.calls:
                found[call.index] = found.get(call.index, "") + call.arguments
        assert reader.has_whole_call is (len(found) > 0 and is_json(found[len(found) - 1]))


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@given(form=FORMS, arguments=st.lists(ARGUMENTS, min_size=1, max_size=3), cuts=CUTS)
def test_where_only_a_call_may_stand_nothing_is_text(form: ToolCallForm, arguments: list[str], cuts: list[int]) -> None:
    """Wherever the text is cut off, a part of a tag is neither text nor a call."""
    count = 1 if form.following is None and not form.repeats else len(arguments)
    calls = [(f"f{index}", text) for index, text in enumerate(arguments[:count])]
    text, found = written(form, calls), list[Found]()
    for end in range(len(text) + 1):
        reader = ToolCallReader(form, must_call=True)
        places = [0, *sorted(place for place in {*cuts} if 0 < place < end), end]
        found = [*(reader.push(text[a:b]) for a, b in pairwise(places)), reader.push("", is_last=True)]
        assert not any(part.text for part in found)
    names = [call.name for part in found for call in part.calls if call.name is not None]
    told = "".join(call.arguments for part in found for call in part.calls)
    assert (names, told) == ([name for name, _ in calls], "".join(text for _, text in calls))


@pytest.mark.parametrize("space", [" " * 17, "\u00a0", "\f"])
def test_a_call_comes_after_no_other_space_than_the_grammar_has(space: str) -> None:
    """The grammar took it for text, and checked nothing."""
    text = space + '{"name": "Bob", "age": 3}'
    reader = ToolCallReader(TOOL_CALL_FORMS[ToolCallParser.LLAMA3_JSON])
    assert reader.push(text, is_last=True).text == text and reader.count == 0


@pytest.mark.parametrize("text", ["{", ' {"nam', '{"name":"x"}', 'a {"name": "f", "parameters": {}}'])
def test_what_is_no_call_is_text(text: str) -> None:
    reader = ToolCallReader(TOOL_CALL_FORMS[ToolCallParser.LLAMA3_JSON])
    assert reader.push(text, is_last=True).text == text and reader.count == 0
