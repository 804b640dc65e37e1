"""Flags and configurations: each field has its flag, each flag reaches its field, both with the same limits."""

import importlib
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import pytest
import typer.main
from typer.testing import CliRunner

from command.flags.option import Option, configured, options, parameters
from command.main import app
from command.serve import PEER
from coordinator.config import CoordinatorConfig
from coordinator.http_config import HttpConfig
from draft_service.config import DraftConfig
from specpair.engine_config import EngineConfig
from specpair.errors import InvalidFieldError
from specpair.flags import Flag, Part, Range, listed
from specpair.options import check_fields
from specpair.security.settings import ChannelSecurity, ServerSecurity
from specpair.server.config import ServerConfig

CONFIGS = (EngineConfig, DraftConfig, CoordinatorConfig, ServerConfig, HttpConfig, ServerSecurity, ChannelSecurity)
WITHOUT_A_FLAG = {
    DraftConfig: {"engine", "max_model_len"},  # set by the engine's flags
    CoordinatorConfig: {
        *("server", "http", "peer_security"),  # set by their own flags
        *("draft_cooldown", "startup_timeout", "draft_startup_timeout"),
    },
    ServerConfig: {"security", "max_message_bytes"},
    HttpConfig: {"security", "host", "max_body_bytes", "grace_seconds"},  # the server's flags set the host
    ChannelSecurity: {"token"},  # never an argument
}
"""Fields that no flag sets: one that is new has either a flag or an entry here."""

SERVED: dict[str, dict[type, str]] = {
    "draft": {DraftConfig: "", EngineConfig: "", ServerConfig: "", ServerSecurity: ""},
    "target": {EngineConfig: "", ServerConfig: "", ServerSecurity: ""},
    "coordinator": {CoordinatorConfig: "", HttpConfig: "", ServerSecurity: "", ChannelSecurity: PEER, ServerConfig: ""},
}
"""The configurations that a service gets, with the prefix of their flags."""
NOT_THE_COORDINATORS = {"metrics_port", "max_streams_per_client", "allowed_hosts"}
"""Fields of the server: it shows metrics by HTTP, whose hosts they are, and counts requests instead of streams."""
NOT_THE_DRAFTS = {"generation_config", "head", "head_quantization", "head_tree_tokens", "tensor_parallel_size"}
GIVEN = {
    **{"port": ("7001", 7001), "http_port": ("7002", 7002), "metrics_port": ("7003", 7003), "threads": ("3", 3)},
    **{"host": ("localhost", "localhost"), "device": ("cuda:1", "cuda:1"), "model": ("m", "m"), "table": ("t", "t")},
    **{"target": ("a:1,dns:b:2", ("a:1", "dns:b:2")), "draft": ("c:3", ("c:3",)), "drafter": ("ngram-model",) * 2},
    **{"http_allowed_hosts": (" a ,b,", ("a", "b")), "num_speculative_tokens": ("5", 5)},
    "http_allowed_origins": ("https://a ,*", ("https://a", "*")),
    "served_model_name": ("gpt-4, gpt-4o", ("gpt-4", "gpt-4o")),
    "pace": ("20,0.5", (0.02, 0.0005)),
    "stream_interval": ("0.2", 0.2),
    "reasoning_parser": ("qwen3",) * 2,
}
"""What is given on the command line and what the field gets, where the type does not say enough."""
PROTECTION = {"tls_cert": "c", "tls_key": "k", "tls_ca": "a", "tokens_file": "t"}
PEERS = {"peer_tls_cert": "c", "peer_tls_key": "k", "peer_tls_ca": "a", "peer_tls_name": "n", "peer_token_file": "f"}
"""Flags that are given together."""
CASES = [
    (service, config, option)
    for service, configs in SERVED.items()
    for config, prefix in configs.items()
    for option in options(config, prefix).values()
    if not (service == "coordinator" and config is ServerConfig and option.field in NOT_THE_COORDINATORS)
    and not (service == "draft" and option.field in NOT_THE_DRAFTS)
]


def served_options(service: str) -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    return {option.name: option for option in group.commands["serve"].commands[service].params}


@pytest.mark.parametrize("config", CONFIGS)
def test_each_field_has_a_flag_or_is_excluded(config: type) -> None:
    flagged = {option.field.partition(".")[0] for option in options(config).values()}
    assert {field.name for field in fields(config)} - flagged == WITHOUT_A_FLAG.get(config, set())


def test_each_option_of_serve_sets_a_field() -> None:
    for service in SERVED:
        known = {option.name for name, _, option in CASES if name == service}
        assert set(served_options(service)) - known == {"otel", "config"}


@pytest.mark.parametrize(("service", "config", "option"), CASES, ids=lambda case: getattr(case, "name", str(case)))
def test_what_is_given_reaches_the_field(
    service: str, config: type, option: Option, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, value = sample(option)
    given = {"drafter": "model", "model": "m"} if service == "draft" else {}
    together = PEERS if option.name.startswith(PEER) else PROTECTION
    if option.name in together:
        given |= together
        text = value = given[option.name]
    flags = [word for name, entry in (given | {option.name: text}).items() for word in words(name, entry)]
    found = reached(run_serve(service, flags, monkeypatch), config, option.field)
    assert found == [value] * len(found) and found


def words(name: str, text: str | None) -> list[str]:
    flag = "--" + name.replace("_", "-")
    return [flag] if text is None else [flag, text]


def sample(option: Option) -> tuple[str | None, Any]:
    """A value other than the default: as it is written, and as the field gets it."""
    if option.name in GIVEN:
        return GIVEN[option.name]
    kind = next((entry for entry in (*get_args(option.kind), option.kind) if entry in (int, float, str, bool)), None)
    if get_origin(option.kind) is Literal:
        choice = next(choice for choice in get_args(option.kind) if choice != option.default)
        return choice, choice
    if isinstance(option.kind, type) and issubclass(option.kind, StrEnum):
        choice = next(choice for choice in option.kind if choice != option.default)
        return choice.value, choice
    if kind is bool:
        return None, True
    assert kind in (int, float, str), f"no sample for {option.name}"
    number = 0.25 if option.name == "gpu_memory_utilization" else 9
    return str(number), kind(number)


def run_serve(service: str, flags: list[str], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the service, which is not started, is told."""
    served: list[Any] = []
    module = importlib.import_module("coordinator.serve" if service == "coordinator" else f"{service}_service.serve")
    monkeypatch.setattr(module, "serve", lambda *configs: served.extend(configs))
    result = CliRunner().invoke(app, ["serve", service, *flags])
    assert result.exit_code == 0, result.output
    return served


def reached(configs: list[Any], kind: type, path: str) -> list[Any]:
    """The field of each configuration of the kind, those within others included."""
    values: list[Any] = []
    for config in configs:
        if isinstance(config, kind):
            value = config
            for name in path.split("."):
                value = getattr(value, name)
            values.append(value)
        elif config is not None and hasattr(config, "__dataclass_fields__"):
            values += reached([getattr(config, field.name) for field in fields(config)], kind, path)
    return values


@pytest.mark.parametrize("config", CONFIGS)
def test_a_number_that_the_help_refuses_is_refused_by_the_configuration(config: type) -> None:
    """Both read the same limits; those of a field without a range are its parser's."""
    needed: dict[type, dict[str, Any]] = {
        EngineConfig: {"model": "m"},
        CoordinatorConfig: {"target_addresses": ("a:1",), "server": ServerConfig(port=0)},
        ServerConfig: {"port": 0},
        HttpConfig: {"port": 0},
    }
    for name, hint in get_type_hints(config, include_extras=True).items():
        for limits in (entry for entry in getattr(hint, "__metadata__", ()) if isinstance(entry, Range)):
            for wrong in (limits.low - 1, limits.high + 1):
                with pytest.raises(InvalidFieldError, match=f"{name}: is {wrong}; it must be between {limits.low} and"):
                    config(**needed.get(config, {}) | {name: wrong})


@dataclass(frozen=True, kw_only=True)
class Inner:
    key: str | None = None


@dataclass(frozen=True, kw_only=True)
class Outer:
    size: Annotated[int, Range(1, 5, "both"), Flag("How large, for {peer}; see {variable}.", "Shape")] = 2
    colours: Annotated[tuple[str, ...], Flag("Which.", name="colour", kind=str, convert=listed)] = ()
    inner: Annotated[Inner | None, Part(key=Flag("Opens it."))] = None
    hidden: Annotated[int, Range(0, 9)] = 3

    def __post_init__(self) -> None:
        check_fields(self, "outer.")


def test_a_field_becomes_a_parameter() -> None:
    size, colour, key = parameters(options(Outer, "my_"), peer="you", help={"my_colour": "What."}, my_size=4)
    assert [size.name, colour.name, key.name] == ["my_size", "my_colour", "my_inner_key"]
    assert (size.default, colour.default, key.default) == (4, "", None)
    (option,) = size.annotation.__metadata__
    assert (option.default, option.envvar, option.min, option.max) == ("--my-size", "SPECPAIR_MY_SIZE", 1, 5)
    assert (option.help, option.rich_help_panel) == ("How large, for you; see SPECPAIR_MY_SIZE.", "Shape")
    assert colour.annotation.__metadata__[0].help == "What."
    (unset,) = parameters(options(Outer, only=("size",)), has_variables=False)
    assert unset.annotation.__metadata__[0].envvar is None


def test_values_become_a_configuration() -> None:
    assert configured(Outer, {"colour": "a,b", "other": 1}) == Outer(colours=("a", "b"))
    assert configured(Outer, {"my_size": 3, "my_inner_key": "k"}, "my_", hidden=4) == Outer(
        size=3, inner=Inner(key="k"), hidden=4
    )
    assert configured(Outer, {"inner_key": None}) == Outer()
    with pytest.raises(InvalidFieldError, match=r"outer\.hidden: is 10; it must be between 0 and 9"):
        configured(Outer, {}, hidden=10)


def test_a_flag_without_a_default_is_needed() -> None:
    (model,) = parameters(options(EngineConfig, only=("model",)))
    assert model.default is model.empty and fields(EngineConfig)[0].default is MISSING
