"""Parts of grammars in the Lark form of llguidance.

Its texts, TEXT among them, never match an added token of the form <...>, whether it is special or not. Where a model
may write one, the grammar has to name it.
"""

import json
from collections.abc import Iterable
from itertools import groupby

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


def one_of_tokens(token_ids: Iterable[int]) -> str:
    """Any of these tokens, at least one, on the right of a rule."""
    runs = (list(run) for _, run in groupby(enumerate(sorted(token_ids)), key=lambda entry: entry[1] - entry[0]))
    return f"<[{','.join(f'{run[0][1]}-{run[-1][1]}' for run in runs)}]>"


def spelled_or_token(mark: str, token_id: int | None) -> str:
    """The mark on the right of a rule. `token_id` is the added token that stands for it, if there is one."""
    return quoted(mark) if token_id is None else f"({quoted(mark)} | <[{token_id}]>)"


def up_to(name: str, mark: str, token_id: int | None = None, *, before: str = "TEXT") -> list[str]:
    """Rules by which `name` is `before` with the first `mark` after it. It ends there, though `before` could go on.
    `token_id` is the added token that stands for the mark, if there is one; the mark may be spelled too."""
    if token_id is None:
        return [f"{name}[lazy]: {before} {quoted(mark)}"]
    return [f"{name}: {name}_spelled | {before} <[{token_id}]>", *up_to(f"{name}_spelled", mark, before=before)]
