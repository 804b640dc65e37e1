"""What deploy/secrets.sh makes is what the services, their clients and Prometheus want."""

import re
import subprocess
from pathlib import Path

import httpx
import pytest
import yaml

from draft_service.config import DraftConfig
from specpair.options import Drafter
from specpair.security.credentials import http_client_context
from specpair.security.settings import ChannelSecurity, ServerSecurity, TlsFiles
from tests.services import PairSecurity, engine_config, running_pair
from tests.tiny_models import make_model

ROOT = Path(__file__).parents[2]
MOUNT = "/run/specpair/"

pytestmark = pytest.mark.needs("openssl")


def make_secrets(folder: Path, *names: str) -> Path:
    subprocess.run(["sh", str(ROOT / "deploy" / "secrets.sh"), str(folder), *names], check=True, timeout=60)
    return folder


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    return make_secrets(tmp_path / "secrets", "api.example.org")


def protecting(folder: Path) -> ServerSecurity:
    """As docker-compose.secured.yml tells the service of this folder."""
    tls = TlsFiles(cert=str(folder / "tls.crt"), key=str(folder / "tls.key"))
    return ServerSecurity(tls=tls, tokens_file=str(folder / "tokens"))


async def test_a_pair_behind_them(secrets: Path, tmp_path: Path) -> None:
    ours = secrets / "coordinator"
    security = PairSecurity(
        models=protecting(secrets / "target"),
        peers=ChannelSecurity(
            tls=TlsFiles(ca=str(ours / "ca.crt")), server_name="target", token_file=str(ours / "peer-token")
        ),
        coordinator=protecting(ours),
        clients=ChannelSecurity(
            tls=TlsFiles(ca=str(secrets / "ca.crt")),
            server_name="api.example.org",
            token_file=str(secrets / "client-token"),
        ),
    )
    target = engine_config(make_model(tmp_path / "target"))
    async with running_pair(target, DraftConfig(drafter=Drafter.NGRAM), security=security) as pair:
        assert len((await pair.generate([1, 2, 3], 8, ignore_eos=True)).token_ids) == 8
        trusting = http_client_context(TlsFiles(ca=str(secrets / "prometheus" / "ca.crt")))
        async with httpx.AsyncClient(base_url=f"https://{pair.http_address}", verify=trusting) as client:
            assert (await client.get("/metrics")).status_code == 401
            token = (secrets / "prometheus" / "token").read_text().strip()
            shown = await client.get("/metrics", headers={"authorization": f"Bearer {token}"})
            assert shown.status_code == 200 and "specpair_build_info" in shown.text


def test_every_file_that_is_named_is_made(secrets: Path) -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.secured.yml").read_text())["services"]
    named = {
        f"{name}/{value.removeprefix(MOUNT)}"
        for name, service in compose.items()
        for value in service.get("environment", {}).values()
        if value.startswith(MOUNT)
    }
    made = {str(file.relative_to(secrets)) for file in secrets.rglob("*") if file.is_file()}
    assert made == {*named, "prometheus/ca.crt", "prometheus/token", "ca.crt", "ca.key", "client-token"}


def test_keys_and_tokens_are_for_their_owner_alone(secrets: Path) -> None:
    files = [file for file in secrets.rglob("*") if file.is_file() and file.name != "ca.crt"]
    assert {file.stat().st_mode & 0o077 for file in files} == {0}
    assert (secrets / "client-token").read_text().strip() not in (secrets / "coordinator" / "tokens").read_text()


def test_addresses_of_the_coordinator_are_written_as_such(tmp_path: Path) -> None:
    """Clients look for an address among the addresses of a certificate, not among its names."""
    folder = make_secrets(tmp_path / "secrets", "192.0.2.7", "2001:db8::7", "::1", "10.example.org", "7", "face.cafe")
    command = ["openssl", "x509", "-in", str(folder / "coordinator" / "tls.crt"), "-noout", "-ext", "subjectAltName"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert re.findall(r"DNS:([^,\s]+)", shown) == ["coordinator", "localhost", "10.example.org", "7", "face.cafe"]
    addresses = re.findall(r"IP Address:([^,\s]+)", shown)
    assert addresses == ["127.0.0.1", "192.0.2.7", "2001:DB8:0:0:0:0:0:7", "0:0:0:0:0:0:0:1"]
