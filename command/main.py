"""The `specpair` command."""

from typing import Annotated

import typer

from command import health, info, serve
from command.exactness.verify_exactness import verify_exactness
from command.flags.access import make_accessing
from command.flags.config_file import make_configurable
from command.flags.otel import make_traceable, traced_client, traced_parent, traced_service
from command.generation.chat import chat
from command.generation.generate import generate
from command.pair.up import up
from command.theory import theory
from command.top.top import top
from command.trace.trace import trace
from specpair.version import package_version

app = typer.Typer(
    name="specpair",
    help="Speculative decoding as a service pair: a draft proposes, a target verifies, the text is the target's own.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up")(up)
app.command("generate")(generate)
app.command("chat")(chat)
app.command("top")(top)
app.command("trace")(trace)
app.command("info")(info.info)
app.command("health")(health.health)
app.command("verify-exactness")(verify_exactness)
app.add_typer(serve.app, name="serve")
app.add_typer(theory.app, name="theory")
make_accessing(app, "generate", "chat", "top", "trace", "info", "health", "verify-exactness")
make_traceable(app, traced_client, "generate", "chat", "trace")
make_traceable(app, traced_parent, "up")
make_traceable(serve.app, traced_service, "draft", "target", "coordinator")
make_configurable(app)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"specpair {package_version()}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Runs before every command."""


if __name__ == "__main__":
    app()
