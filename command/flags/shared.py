"""Options that several commands share and that do not set a field of a configuration."""

from typing import Annotated

import typer

DEFAULT_ADDRESS = "127.0.0.1:50050"

AddressOption = Annotated[
    str, typer.Option("--address", envvar="SPECPAIR_ADDRESS", help="The coordinator, as host:port.")
]
ChatOption = Annotated[
    bool, typer.Option("--chat", help="Send the prompt as a user's message in the model's chat format.")
]
EncoderInputOption = Annotated[
    str | None,
    typer.Option(
        "--encoder-input",
        metavar="TEXT",
        help="What the encoder reads, in place of a prompt, for encoder-decoder models such as T5; - reads it from "
        "standard input.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
NoColorOption = Annotated[
    bool, typer.Option("--no-color", help="Plain text, as with NO_COLOR set or when the output is not a terminal.")
]
OptionalPromptArgument = Annotated[
    str | None, typer.Argument(help="Text to continue; - reads it from standard input.", show_default=False)
]
