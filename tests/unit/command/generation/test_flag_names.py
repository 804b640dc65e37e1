"""Errors name flags: a person who typed a flag need not know what field it sets."""

import pytest

from command.flags.option import Option, configured, options
from command.generation.flag_names import in_flags
from command.generation.request_options import RequestOptions
from command.generation.structures import STRUCTURES
from coordinator.config import CoordinatorConfig
from coordinator.http_config import HttpConfig
from draft_service.config import DraftConfig
from specpair.engine_config import EngineConfig
from specpair.errors import InvalidFieldError
from specpair.server.config import ServerConfig
from specpair.v1 import coordinator_service_pb2 as pb

CONFIGS = (ServerConfig, EngineConfig, DraftConfig, CoordinatorConfig, HttpConfig)
LIMITED = [(config, option) for config in CONFIGS for option in options(config).values() if option.limits]


def field_of(name: str) -> str:
    """As the server writes it."""
    if name in STRUCTURES:
        return f"structured_output.{name}"
    return name if name in pb.GenerateTokensRequest.DESCRIPTOR.fields_by_name else f"sampling.{name}"


@pytest.mark.parametrize("option", options(RequestOptions).values(), ids=lambda option: option.words)
def test_every_field_of_a_request_that_a_flag_sets_is_called_by_the_flag(option: Option) -> None:
    field = field_of(option.field)
    assert in_flags(f"{field}: is wrong") == f"{option.words}: is wrong"
    assert in_flags(f"{field}[3]: is wrong") == f"{option.words}: is wrong"
    assert in_flags(f"{field} count: is 0; it must be 1") == f"{option.words}: its count is 0; it must be 1"
    assert in_flags(f"{field}[3] length: is 0") == f"{option.words}: its length is 0"
    assert in_flags(f"{field} bytes: is 0") == f"{option.words}: its length in bytes is 0"
    if "_" in option.field:
        assert in_flags(f"n: requires {option.field}") == f"--n: requires {option.words}"


@pytest.mark.parametrize(("config", "option"), LIMITED, ids=lambda entry: getattr(entry, "words", None))
def test_every_limited_field_of_a_configuration_is_called_by_its_flag(config: type, option: Option) -> None:
    assert option.limits is not None
    needed = {EngineConfig: {"model": "m"}, ServerConfig: {"port": 1}}.get(config, {})
    if config is CoordinatorConfig:
        needed = {"target_addresses": ("a:1",), "draft_addresses": ("a:2",), "server": ServerConfig(port=1)}
    needed = {name: value for name, value in needed.items() if name != option.field}
    with pytest.raises(InvalidFieldError) as caught:
        configured(config, {option.name: option.limits.high + 1}, **needed)
    assert in_flags(caught.value.message).startswith(f"{option.words}: is ")


@pytest.mark.parametrize(
    ("values", "flag"),
    [
        ({"regex": "(", "choices": None, "grammar": None}, "--regex"),
        ({"regex": ""}, "--regex"),
        ({"choices": ["a"], "regex": None}, "--choice"),
        ({}, "--json-schema, --regex, --grammar or --choice"),
    ],
)
def test_a_structured_output_is_called_by_the_flag_that_was_given(values: dict[str, object], flag: str) -> None:
    assert in_flags("structured_output: cannot be used: (", values) == f"{flag}: cannot be used: ("
    assert in_flags("stop_strings: cannot be combined with structured_output", values).endswith(f"with {flag}")


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("text length: is 0", "prompt: its length is 0"),
        ("prompt: has 9 tokens", "prompt: has 9 tokens"),
        ("encoder_text: is there, but no text", "--encoder-input: is there, but no text"),
        ("cost_ratio: is -1", "--cost-ratio: is -1"),
        ("cost_ratio[1]: is -1", "--cost-ratio[1]: is -1"),
        ("--target length: is 0", "--target: its length is 0"),
        ("the target has no head", "the target has no head"),
        ("chat.messages[0].role: is 'x'", "chat.messages[0].role: is 'x'"),
        ("drafts[0]: is 'max_tokens'; there are none", "--draft: is 'max_tokens'; there are none"),
        ("tls_ca: no.pem cannot be read", "--tls-ca: no.pem cannot be read"),
        ("merge: is tree, so `drafts` must name several", "--merge: is tree, so --draft must name several"),
        ("merge: is none; see `specpair info`", "--merge: is none; see `specpair info`"),
        ("token_file: no.txt cannot be read", "--token-file: no.txt cannot be read"),
    ],
)
def test_what_else_is_named(message: str, shown: str) -> None:
    assert in_flags(message, {"cost_ratio": -1.0, "prompt": "x"}) == shown
