"""Flags and variables of protection, and what becomes of them."""

from typing import Any

import pytest

import command.pair.up
import coordinator.serve
import draft_service.serve
import target_service.serve
from command.pair import child
from command.pair.local_pair import ServicePlan
from specpair.security.settings import ChannelSecurity, ServerSecurity, TlsFiles
from tests.unit.command.test_commands import run

SERVICES = {"draft": draft_service.serve, "target": target_service.serve, "coordinator": coordinator.serve}
TLS = ["--tls-cert", "c", "--tls-key", "k", "--tls-ca", "a"]


def served(service: str, *flags: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """What the command hands to the service, which is not started."""
    handed: list[tuple[Any, ...]] = []
    monkeypatch.setattr(SERVICES[service], "serve", lambda *configs: handed.append(configs))
    status, _, errors = run("serve", service, *flags)
    assert status == 0, errors
    return handed[0]


@pytest.mark.parametrize("service", SERVICES)
def test_flags_and_variables_protect_every_service(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = ServerSecurity(tls=TlsFiles(cert="c", key="k", ca="a"), tokens_file="t")
    given = served(service, "--host", "0.0.0.0", *TLS, "--tokens-file", "t", monkeypatch=monkeypatch)
    for name, value in {"TLS_CERT": "c", "TLS_KEY": "k", "TLS_CA": "a", "TOKENS_FILE": "t"}.items():
        monkeypatch.setenv(f"SPECPAIR_{name}", value)
    by_environment = served(service, "--host", "0.0.0.0", monkeypatch=monkeypatch)
    for configs in (given, by_environment):
        if service == "coordinator":
            assert (configs[0].server.security, configs[0].http.security) == (expected, expected)
        else:
            assert configs[1].security == expected


def test_the_coordinators_way_to_its_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ["--peer-tls-ca", "a", "--peer-tls-cert", "c", "--peer-tls-key", "k", "--peer-tls-name", "n"]
    monkeypatch.setenv("SPECPAIR_PEER_TOKEN", "a-token-of-the-environment")
    (config,) = served("coordinator", *flags, monkeypatch=monkeypatch)
    tls = TlsFiles(cert="c", key="k", ca="a")
    expected = ChannelSecurity(tls=tls, server_name="n", token="a-token-of-the-environment")
    assert config.peer_security == expected and "a-token" not in repr(config)
    (config,) = served("coordinator", *flags, "--peer-token-file", "f", monkeypatch=monkeypatch)
    assert config.peer_security == ChannelSecurity(tls=tls, server_name="n", token_file="f")


@pytest.mark.parametrize("command", [["serve", "draft"], ["serve", "target"], ["serve", "coordinator"], ["up"]])
def test_what_others_reach_wants_protection(command: list[str]) -> None:
    status, output, errors = run(*command, "--host", "0.0.0.0")
    assert (status, output) == (2, "")
    assert errors.startswith("specpair: --host: 0.0.0.0 can be reached") and "--insecure" in errors


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["serve", "draft", "--drafter", "ngram", "--tls-ca", "a"], "--tls-cert: is missing"),
        (["serve", "coordinator", "--tls-cert", "c"], "--tls-key: is missing"),
        (["serve", "coordinator", "--peer-tls-name", "n"], "--peer-tls-name: is given"),
        (["info", "--tls-key", "k"], "--tls-cert: is missing"),
        (["up", "--prompt", "x", "--tokens-file", "t"], "--prompt is sent without a token"),
    ],
)
def test_what_does_not_go_together_is_one_line(arguments: list[str], problem: str) -> None:
    status, output, errors = run(*arguments)
    assert (status, output) == (2, "") and errors.startswith(f"specpair: {problem}") and errors.count("\n") == 1


def test_secrets_are_no_arguments() -> None:
    """Every user of a machine sees the arguments of every process."""
    for arguments in (["generate", "x"], ["serve", "coordinator"]):
        for flag in ("--token", "--peer-token", "--api-key"):
            status, _, errors = run(*arguments, flag, "secret")
            assert status == 2 and "No such option" in errors


def test_up_protects_the_coordinator_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[ServicePlan] = []

    async def keep(plans: list[ServicePlan], *rest: Any, **others: Any) -> None:
        planned.extend(plans)

    monkeypatch.setattr(command.pair.up, "_run", keep)
    status, _, errors = run("up", "--host", "0.0.0.0", "--tokens-file", "t", "--drafter", "uniform")
    assert status == 0, errors
    protected = {plan.name: "--tokens-file" in plan.arguments for plan in planned}
    assert protected == {"draft": False, "target": False, "coordinator": True}


def test_the_services_of_up_inherit_no_protection(monkeypatch: pytest.MonkeyPatch) -> None:
    protecting = {
        "SPECPAIR_TLS_CA",
        "SPECPAIR_TOKENS_FILE",
        "SPECPAIR_TOKEN",
        "SPECPAIR_PEER_TOKEN",
        "SPECPAIR_INSECURE",
        "SPECPAIR_CONFIG",
    }
    for name in protecting:
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("SPECPAIR_DTYPE", "float32")
    inherited = {name for name in child._environment() if name.startswith("SPECPAIR_")}
    assert "SPECPAIR_DTYPE" in inherited and not inherited & protecting
