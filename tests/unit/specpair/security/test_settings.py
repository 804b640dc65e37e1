"""What may be listened on without protection, and what goes together."""

from typing import Any

import pytest

from coordinator.http_config import HttpConfig
from specpair.errors import InvalidFieldError
from specpair.security.settings import ChannelSecurity, ServerSecurity, TlsFiles, is_loopback
from specpair.server.config import ServerConfig

LOOPBACK = ["127.0.0.1", "127.8.8.8", "::1", "localhost"]
REACHABLE = [
    "0.0.0.0",
    "::",
    "10.1.2.3",
    "fe80::1%eth0",
    "::ffff:10.1.2.3",
    "my-host",
    "127.1",
    "0",
    "",
    "localhost.evil",
]
PROTECTED = [
    ServerSecurity(tls=TlsFiles(cert="c", key="k")),
    ServerSecurity(tokens_file="t"),
    ServerSecurity(is_insecure=True),
]


@pytest.mark.parametrize("config", [ServerConfig, HttpConfig])
@pytest.mark.parametrize("host", REACHABLE)
def test_what_others_reach_is_not_listened_on_without_protection(config: Any, host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(InvalidFieldError, match=r"^host: .*--tls-cert.*--tls-key.*--tokens-file.*--insecure"):
        config(host=host, port=0)
    for security in PROTECTED:
        config(host=host, port=0, security=security)


@pytest.mark.parametrize("config", [ServerConfig, HttpConfig])
@pytest.mark.parametrize("host", LOOPBACK)
def test_the_loopback_interface_needs_none(config: Any, host: str) -> None:
    assert is_loopback(host)
    config(host=host, port=0)


def test_a_certificate_and_its_key_go_together() -> None:
    with pytest.raises(InvalidFieldError, match="tls_key: is missing"):
        TlsFiles(cert="c")
    with pytest.raises(InvalidFieldError, match="tls_cert: is missing"):
        TlsFiles(key="k", ca="a")
    with pytest.raises(InvalidFieldError, match="tls_cert: is missing"):
        ServerSecurity(tls=TlsFiles(ca="a"))
    with pytest.raises(InvalidFieldError, match="tls_ca: is system"):
        ServerSecurity(tls=TlsFiles(cert="c", key="k", ca="system"))
    with pytest.raises(InvalidFieldError, match="tls_name: is given"):
        ChannelSecurity(server_name="x")
    with pytest.raises(InvalidFieldError, match="token_file: is given"):
        ChannelSecurity(token="a" * 16, token_file="t")


def test_a_token_is_in_no_representation() -> None:
    secret = "sesame-open-please"
    security = ChannelSecurity(token=secret)
    assert secret not in repr(security) and secret not in str(security) and secret not in f"{security}"
