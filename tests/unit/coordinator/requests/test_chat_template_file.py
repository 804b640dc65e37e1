"""The file of `--chat-template`: what is taken from it, and how it is refused."""

from pathlib import Path

import pytest

from coordinator.requests.chat_template_file import MAX_TEMPLATE_BYTES, read_chat_template
from specpair.errors import InvalidFieldError

TEMPLATE = "{% for m in messages %}é{{ m.content }}{% endfor %}"
DEEP = "(" * 5000 + "1" + ")" * 5000


def written(folder: Path, content: bytes) -> str:
    path = folder / "chat.jinja"
    path.write_bytes(content)
    return str(path)


def test_the_source_is_the_text_of_the_file(tmp_path: Path) -> None:
    assert read_chat_template(written(tmp_path, TEMPLATE.encode())) == TEMPLATE
    longest = TEMPLATE.encode() + b" " * (MAX_TEMPLATE_BYTES - len(TEMPLATE.encode()))
    assert read_chat_template(written(tmp_path, longest)).rstrip() == TEMPLATE
    assert read_chat_template(written(tmp_path, b"\xef\xbb\xbf" + TEMPLATE.encode())) == TEMPLATE


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff", "is not UTF-8 text"),
        (b" \n", "is empty"),
        (b"a" * (MAX_TEMPLATE_BYTES + 1), "has more than 262144 bytes"),
        (b"a" * MAX_TEMPLATE_BYTES + "é".encode(), "has more than 262144 bytes"),
        (b"\n{% for %}", ": the chat template cannot be read: line 2: Expected an expression"),
        (b"{{ x | no_such_filter }}", "line 1: No filter named 'no_such_filter'"),
        (f"{{{{ {DEEP} }}}}".encode(), "RecursionError"),
        (b"{% for a in b %}" * 30 + b"{% endfor %}" * 30, "SyntaxError: too many statically nested blocks"),
    ],
    ids=["bytes", "empty", "large", "large by half a character", "syntax", "filter", "deep", "nested"],
)
def test_a_file_that_cannot_be_used_is_named_with_the_flag(tmp_path: Path, content: bytes, words: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(InvalidFieldError) as caught:
        read_chat_template(path)
    assert caught.value.message.startswith(f"--chat-template: {path}") and words in caught.value.message


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    paths = {"none.jinja": "No such file", "": "Is a directory", "\0": "embedded null byte"}
    for path, words in ((tmp_path / name, words) for name, words in paths.items()):
        with pytest.raises(InvalidFieldError, match=f"--chat-template: {path} cannot be read: {words}"):
            read_chat_template(str(path))
