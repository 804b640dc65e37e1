"""Authorities and certificates for tests, as files."""

from pathlib import Path

import trustme

from specpair.security.settings import TlsFiles


class Authority:
    """One that signs certificates; its own is at `path`."""

    def __init__(self, folder: Path, name: str = "ca"):
        self._folder = folder
        self._authority = trustme.CA()
        self.path = folder / f"{name}.pem"
        self._authority.cert_pem.write_to_path(str(self.path))

    def issue(self, file: str, *names: str, common_name: str | None = None) -> tuple[Path, Path]:
        """A certificate and its key, for these names; written over those of an earlier call."""
        issued = self._authority.issue_cert(*(names or ("127.0.0.1", "localhost")), common_name=common_name)
        cert, key = self._folder / f"{file}.crt", self._folder / f"{file}.key"
        cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(key))
        return cert, key

    def tls(self, file: str, *names: str, common_name: str | None = None, ca: Path | None = None) -> TlsFiles:
        """A new certificate as the files of one side, with the authority of the other side."""
        cert, key = self.issue(file, *names, common_name=common_name)
        return TlsFiles(cert=str(cert), key=str(key), ca=None if ca is None else str(ca))
