"""Names by which a server may be asked for."""

import pytest

from specpair.server.host_check import host_name, is_local


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost:8000", "localhost"),
        ("LocalHost", "localhost"),
        ("example.org.:80", "example.org"),
        ("127.0.0.1:8000", "127.0.0.1"),
        ("[::1]:8000", "::1"),
        ("[::1]", "::1"),
        ("", ""),
    ],
)
def test_names_in_headers(header: str, name: str) -> None:
    assert host_name(header) == name


@pytest.mark.parametrize("name", ["", "localhost", "page.localhost", "127.0.0.1", "10.1.2.3", "::1", "fe80::1%eth0"])
def test_names_that_no_site_can_have(name: str) -> None:
    assert is_local(name)


@pytest.mark.parametrize(
    "name", ["example.org", "localhost.example.org", "notlocalhost", "127.0.0.1.nip.io", "coordinator", "0x7f.1", "::x"]
)
def test_names_that_a_site_could_have(name: str) -> None:
    assert not is_local(name)
