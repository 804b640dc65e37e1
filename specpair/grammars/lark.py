"""Parts of grammars in the Lark form of llguidance."""

import json

TEXT = r"TEXT: /(.|\n)*/"
"""A rule for any text."""


def quoted(text: str) -> str:
    """The text in the quotes of a grammar."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def up_to(name: str, mark: str, special_id: int | None = None, *, before: str = "TEXT") -> list[str]:
    """Rules by which `name` is `before` with the first `mark` after it. It ends there, though `before` could go on.
    `special_id` is the special token that stands for the mark, if there is one; the mark may be spelled too."""
    if special_id is None:
        return [f"{name}[lazy]: {before} {quoted(mark)}"]
    return [f"{name}: {name}_spelled | {before} <[{special_id}]>", *up_to(f"{name}_spelled", mark, before=before)]
