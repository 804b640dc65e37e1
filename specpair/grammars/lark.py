"""Parts of grammars in the Lark form of llguidance."""

import json

TEXT = r"TEXT: /(.|\n)*/"
"""A rule for any text."""
WHITE = " \t\r\n"
"""The characters that JSON has as white space. Readers of outputs know no others, so that they agree with grammars."""
FEW_SPACES = r"[ \t\r\n]{0,16}"
"""White space that may stand before a mark, as a regex. Without a limit a model could go on with it for ever."""
SPACE = f"SPACE: /{FEW_SPACES}/"
"""A rule for it."""


def quoted(text: str) -> str:
    """The text in the quotes of a grammar."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def spelled_or_token(mark: str, token_id: int | None) -> str:
    """The mark on the right of a rule. `token_id` is the added token that stands for it, if there is one: a text of the
    grammar never matches such a token if the mark has the form <...>."""
    return quoted(mark) if token_id is None else f"({quoted(mark)} | <[{token_id}]>)"


def up_to(name: str, mark: str, token_id: int | None = None, *, before: str = "TEXT") -> list[str]:
    """Rules by which `name` is `before` with the first `mark` after it. It ends there, though `before` could go on.
    `token_id` is the added token that stands for the mark, if there is one; the mark may be spelled too."""
    if token_id is None:
        return [f"{name}[lazy]: {before} {quoted(mark)}"]
    return [f"{name}: {name}_spelled | {before} <[{token_id}]>", *up_to(f"{name}_spelled", mark, before=before)]
