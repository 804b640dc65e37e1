"""Makes the options of a command from the fields of a configuration, and the configuration from their values."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from inspect import Parameter
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer

from specpair.errors import InvalidFieldError
from specpair.flags import Flag, Part, Range

VARIABLE = "SPECPAIR_"
"""Prefix of the environment variables."""

Config = TypeVar("Config")


@dataclass(frozen=True, kw_only=True)
class Option:
    """A field of a configuration on a command line."""

    name: str
    """Name of the command's parameter; with dashes, the name of the flag."""
    field: str
    """Field of the configuration; `outer.inner` for a field of a nested configuration."""
    kind: Any
    """The type of the value."""
    flag: Flag
    limits: Range | None = None
    default: Any = None

    @property
    def words(self) -> str:
        """The flag as written on the command line."""
        return "--" + self.name.replace("_", "-")


Options = dict[str, Option]
"""Options by name."""


def options(config: type, prefix: str = "", *, only: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> Options:
    """The options of all fields that have flags, of `only` some of them, or `without` some. Their names begin with the
    prefix."""
    named = {option.name: (option.field.partition(".")[0], option) for option in _options(config, prefix)}
    return {
        name: option for name, (field, option) in named.items() if (not only or field in only) and field not in without
    }


def parameters(
    given: Options,
    *,
    help: Mapping[str, str] | None = None,
    has_variables: bool = True,
    peer: str = "the service",
    **defaults: Any,
) -> list[Parameter]:
    """The options as parameters of a command, for typer.

    `help` and `defaults` replace those of the fields, by the names of the options. Without `has_variables`, environment
    variables do not set them. `peer` names the other side of a connection.
    """
    texts = {name: option.flag.help for name, option in given.items()} | dict(help or {})
    return [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=(default := defaults.get(name, option.default)),
            annotation=Annotated[option.kind, _typer_option(option, default, texts[name], has_variables, peer)],
        )
        for name, option in given.items()
    ]


def field_values(config: type, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The configuration's fields, as far as `values` has their options."""
    found: dict[str, Any] = {}
    hints = get_type_hints(config)
    for option in options(config, prefix).values():
        if option.name not in values:
            continue
        value, (outer, _, inner) = values[option.name], option.field.partition(".")
        if not inner:
            found[outer] = option.flag.convert(value) if option.flag.convert else value
        elif value is not None:
            found[outer] = {**found.get(outer, {}), inner: value}
    return {name: _bare(hints[name])(**value) if isinstance(value, dict) else value for name, value in found.items()}


def configured(config: type[Config], values: Mapping[str, Any], prefix: str = "", **others: Any) -> Config:
    """The configuration from the options, with `others` for other fields. Raises InvalidFieldError, naming the flag."""
    try:
        return config(**{**field_values(config, values, prefix), **others})
    except InvalidFieldError as error:
        raise _of_flag(error, options(config, prefix).values(), prefix) from None


def _of_flag(error: InvalidFieldError, given: Iterable[Option], prefix: str) -> InvalidFieldError:
    """The error with the flag in place of the field: the field's own name, or the option's with or without prefix."""
    field, _, problem = error.message.partition(": ")
    name, *measure = field.rpartition(".")[2].split(" ")
    for option in given:
        if name in (option.field, option.name, option.name.removeprefix(prefix)):
            return InvalidFieldError(" ".join([option.words, *measure]), problem)
    return error


def _options(config: type, prefix: str) -> Iterator[Option]:
    hints = get_type_hints(config, include_extras=True)
    for field in fields(config):
        hint = hints[field.name]
        kind, *extras = get_args(hint) if get_origin(hint) is Annotated else [hint]
        found = {type(extra): extra for extra in extras}
        for inner, flag in found.get(Part, {}).items():
            name = f"{prefix}{field.name}_{inner}"
            yield Option(name=name, field=f"{field.name}.{inner}", kind=str | None, flag=flag)
        if flag := found.get(Flag):
            yield Option(
                name=prefix + (flag.name or field.name),
                field=field.name,
                kind=flag.kind or kind,
                flag=flag,
                limits=found.get(Range),
                default=flag.kind() if flag.kind else Parameter.empty if field.default is MISSING else field.default,
            )


def _typer_option(option: Option, default: Any, help: str, has_variables: bool, peer: str) -> Any:
    flag, limits = option.flag, option.limits
    variable = VARIABLE + option.name.upper()
    variables = [variable, *flag.variables] if has_variables else []
    return typer.Option(
        option.words,
        envvar=variables if len(variables) > 1 else "".join(variables) or None,
        help=help.replace("{peer}", peer).replace("{variable}", variable.removesuffix("_FILE")),
        min=limits.low if limits is not None and limits.shown != "none" else None,
        max=limits.high if limits is not None and limits.shown == "both" else None,
        metavar=flag.metavar,
        show_default=flag.default_text if flag.default_text is not None and default is None else True,
        parser=_parser(flag) if flag.parse is not None else None,
        rich_help_panel=flag.panel,
    )


def _parser(flag: Flag) -> Any:
    def parse(text: str) -> Any:
        assert flag.parse is not None
        try:
            return flag.parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return parse


def _bare(kind: Any) -> Any:
    """A type without `| None`."""
    return next(entry for entry in get_args(kind) if entry is not NoneType)
