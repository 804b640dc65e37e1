"""`--config FILE`: values for the flags of every command, in TOML.

A section is a command, a key is a flag without its dashes. Keys before the first section apply to every command that
has such a flag. Precedence: flags on the command line, environment variables, the file, defaults.

    address = "127.0.0.1:50050"

    [generate]
    max-tokens = 64

    [serve.draft]
    drafter = "ngram"
"""

import difflib
import functools
import tomllib
from collections.abc import Iterable, Mapping
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from command.failures import WRONG_USE, CommandError, friendly
from command.flags.signature import Command, add_parameters

Values = dict[str, Any]
"""Values by parameter of a command or, for a group, by command."""

CONFIG = "config"
_NO_KEYS = {CONFIG, "help", "version", "install-completion", "show-completion"}


@friendly
def use_config(context: typer.Context, file: Path | None) -> None:
    """Makes the file's values the defaults of the command that will run."""
    if file is None or context.resilient_parsing:  # the latter while a shell completes words
        return
    values = defaults_of(context.find_root().command, read_toml(file), str(file))
    for name in _path(context):
        values = values.get(name, {})
    context.default_map = values


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        envvar="SPECPAIR_CONFIG",
        is_eager=True,  # before the others, whose defaults it sets
        callback=use_config,
        help="TOML file with values for flags: a section for each command, such as serve.draft, and a key for "
        "each flag, without its dashes. Flags and environment variables take precedence.",
    ),
]


def make_configurable(app: typer.Typer) -> None:
    """Adds the option to every command of the app and of its sub-apps."""
    for command in app.registered_commands:
        assert command.callback is not None
        command.callback = _configurable(command.callback)
    for group in app.registered_groups:
        assert group.typer_instance is not None
        make_configurable(group.typer_instance)


def read_toml(file: Path) -> Values:
    """The parsed file. Raises CommandError if it cannot be read."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}", WRONG_USE) from None
    except ValueError as error:  # of TOML, and of UTF-8
        raise CommandError(f"{file}: {error}", WRONG_USE) from None


def defaults_of(root: Any, document: Mapping[str, Any], file: str) -> Values:
    """The document as values of the commands' parameters. Raises CommandError for unknown sections and keys.

    `root` is the group of all commands; `file` is for messages.
    """
    general = {key: value for key, value in document.items() if not isinstance(value, dict)}
    sections = {key: value for key, value in document.items() if isinstance(value, dict)}
    known = {flag for command in _leaves(root) for flag in _flags(command)}
    for key in general:
        if key not in known:
            raise _unknown("key", key, known, file)
    return _group_defaults(root, sections, general, file, "")


def _group_defaults(group: Any, sections: Mapping[str, Any], general: Values, file: str, path: str) -> Values:
    for key in sections:
        if key not in group.commands:
            raise _unknown("section" if not path else f"key of [{path}]", key, group.commands, file)
    values: Values = {}
    for name, command in group.commands.items():
        section, place = sections.get(name, {}), f"{path}.{name}".lstrip(".")
        if not isinstance(section, dict):
            raise CommandError(f"{file}: [{place}] must be a section", WRONG_USE)
        if hasattr(command, "commands"):
            values[name] = _group_defaults(command, section, general, file, place)
        else:
            values[name] = _command_defaults(command, section, general, file, place)
    return values


def _command_defaults(command: Any, section: Mapping[str, Any], general: Values, file: str, path: str) -> Values:
    flags = _flags(command)
    for key in section:
        if key not in flags:
            raise _unknown(f"key of [{path}]", key, flags, file)
    given = {**{key: value for key, value in general.items() if key in flags}, **section}
    return {flags[key].name: _checked(flags[key], key, value, file) for key, value in given.items()}


def _checked(option: Any, key: str, value: Any, file: str) -> Any:
    """The value in the form of the command line, which checks it further."""
    if option.multiple:
        if not isinstance(value, list) or not all(_is_scalar(entry) for entry in value):
            raise CommandError(f"{file}: {key} must be a list", WRONG_USE)
        return [str(entry) for entry in value]
    if option.is_flag:
        if not isinstance(value, bool):
            raise CommandError(f"{file}: {key} must be true or false", WRONG_USE)
        return value
    if not _is_scalar(value):
        raise CommandError(f"{file}: {key} must be a number or a text", WRONG_USE)
    return str(value)


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _leaves(group: Any) -> Iterable[Any]:
    for command in group.commands.values():
        if hasattr(command, "commands"):
            yield from _leaves(command)
        else:
            yield command


def _flags(command: Any) -> dict[str, Any]:
    """The options of a command, by their names in the file."""
    names = {flag.removeprefix("--"): option for option in command.params for flag in option.opts if flag[:2] == "--"}
    return {name: option for name, option in names.items() if name not in _NO_KEYS}


def _unknown(what: str, key: str, known: Iterable[str], file: str) -> CommandError:
    close = difflib.get_close_matches(key.replace("_", "-"), list(known), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return CommandError(f"{file}: unknown {what}: {key!r}{hint}", WRONG_USE)


def _path(context: typer.Context) -> list[str]:
    """The names of the running command, without the root."""
    names: list[str] = []
    node: Any = context
    while node.parent is not None:
        names.insert(0, node.info_name)
        node = node.parent
    return names


def _configurable(command: Command) -> Command:
    """The command with the option, whose callback has run before the command."""

    @functools.wraps(command)
    def run(*args: Any, config: Path | None = None, **kwargs: Any) -> None:
        command(*args, **kwargs)

    add_parameters(run, [Parameter(CONFIG, Parameter.KEYWORD_ONLY, default=None, annotation=ConfigOption)])
    return run
