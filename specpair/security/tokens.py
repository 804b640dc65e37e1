"""Bearer tokens: the tokens file of a server, and the token of a client.

A line of the file is `name:token` or, to keep the secret out of the file, `name:sha256:` and the token's digest in hex.
Empty lines and lines that begin with # are skipped. A name may have several tokens, so that one can be replaced.
"""

import hashlib
import hmac
import logging
from collections.abc import Iterable

from specpair.errors import InvalidFieldError, UnauthenticatedError
from specpair.security.settings import ChannelSecurity
from specpair.security.watched_files import WatchedFiles, read_secret_file

MIN_TOKEN_LENGTH = 16
"""Digests are plain SHA-256, so a token that can be guessed from a word list could be found from its digest."""
MAX_TOKEN_LENGTH = 4096
MAX_NAME_LENGTH = 64
DIGEST_PREFIX = "sha256:"
FLAG = "--tokens-file"
"""Names the file in errors, which a server logs as they are."""
AUTHORIZATION = "authorization"
"""Key in the gRPC metadata, and name of the HTTP header."""
SCHEME = "bearer"

logger = logging.getLogger(__name__)


class TokenTable:
    """Digests of tokens with the names of their clients."""

    def __init__(self, names_by_digest: dict[bytes, str]):
        self._names_by_digest = names_by_digest

    @property
    def is_empty(self) -> bool:
        return not self._names_by_digest

    def name_of(self, token: str) -> str:
        """The client that has this token. Raises UnauthenticatedError.

        The time it takes reveals nothing about the tokens: it compares all digests, each in constant time.
        """
        digest = digest_of(token)
        names = [name for known, name in self._names_by_digest.items() if hmac.compare_digest(known, digest)]
        if not names:
            raise UnauthenticatedError
        return names[0]


class KnownTokens:
    """The tokens of a file, which may change.

    A file that becomes empty revokes all tokens: an operator who empties it means that. At the start an empty file is
    an error, because it can only be a mistake.
    """

    def __init__(self, path: str):
        """Raises InvalidFieldError."""
        if read_tokens(path).is_empty:
            raise InvalidFieldError(FLAG, f"{path} holds no token")
        self._watched = WatchedFiles([path], lambda: _read_again(path))

    @property
    def table(self) -> TokenTable:
        """The current tokens of the file; the same object until the file changes."""
        return self._watched.current()

    def client_of(self, authorization: str | None) -> str:
        """The name of the client that sent this header (None: no header). Raises UnauthenticatedError."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != SCHEME:
            raise UnauthenticatedError
        return self.table.name_of(token.strip())


def digest_of(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="backslashreplace")).digest()


def read_tokens(path: str) -> TokenTable:
    """Reads a tokens file. Raises InvalidFieldError, which names the line but not its content."""
    try:
        text = read_secret_file(FLAG, path).decode()
    except UnicodeDecodeError:
        raise InvalidFieldError(FLAG, f"{path} is not UTF-8 text") from None
    try:
        return parse_tokens(text.splitlines())
    except ValueError as error:
        raise InvalidFieldError(FLAG, f"{path}: {error}") from None


def _read_again(path: str) -> TokenTable:
    """Reads a changed tokens file. Raises InvalidFieldError."""
    table = read_tokens(path)
    if table.is_empty:
        logger.warning("%s holds no token any more: all clients are refused", path)
    return table


def parse_tokens(lines: Iterable[str]) -> TokenTable:
    """Parses the lines of a tokens file. Raises ValueError."""
    names: dict[bytes, str] = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        try:
            name, digest = _parse_line(line)
        except ValueError as error:
            raise ValueError(f"line {number} {error}") from None
        if names.setdefault(digest, name) != name:
            raise ValueError(f"line {number} has the token of another name")
    return TokenTable(names)


def _parse_line(line: str) -> tuple[str, bytes]:
    name, _, token = line.partition(":")
    if not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise ValueError(f"must be name:token, with a name of 1 to {MAX_NAME_LENGTH} printable characters")
    if token.startswith(DIGEST_PREFIX):
        return name, _parse_digest(token.removeprefix(DIGEST_PREFIX))
    return name, digest_of(checked_token(token))


def _parse_digest(text: str) -> bytes:
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise ValueError("must have the 64 hexadecimal digits of a SHA-256 digest after sha256:")
    return digest


def checked_token(token: str) -> str:
    """Returns the token. Raises ValueError for a token that could be guessed or cannot be sent."""
    if not MIN_TOKEN_LENGTH <= len(token) <= MAX_TOKEN_LENGTH:
        raise ValueError(f"must have a token of {MIN_TOKEN_LENGTH} to {MAX_TOKEN_LENGTH} characters")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("must have a token of printable ASCII characters without spaces")
    return token


def read_token(path: str) -> str:
    """The token in a file that holds exactly one. Raises InvalidFieldError."""
    text = read_secret_file("token_file", path).decode("ascii", errors="replace").strip()
    try:
        return checked_token(text)
    except ValueError as error:
        raise InvalidFieldError("token_file", f"{path} {error}") from None


def token_of(security: ChannelSecurity) -> str | None:
    """The token to send, with the file's current content; None if there is none. Raises InvalidFieldError."""
    if security.token_file is not None:
        return read_token(security.token_file)
    try:
        return None if security.token is None else checked_token(security.token)
    except ValueError as error:
        raise InvalidFieldError("token", str(error)) from None


def bearer(token: str) -> str:
    """The value of the authorization header."""
    return f"Bearer {token}"
