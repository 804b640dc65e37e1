"""Bearer tokens: the file of those that a service knows, and the one that a client shows.

A line of the file is `name:token` or, so that the file is no secret, `name:sha256:` and the digest of the token in hex.
Empty lines and those that begin with # are skipped. A name may have several tokens: that is how one is replaced.
"""

import hashlib
import hmac
import logging
from collections.abc import Iterable

from specpair.errors import InvalidFieldError, UnauthenticatedError
from specpair.security.settings import ChannelSecurity
from specpair.security.watched_files import WatchedFiles, read_secret_file

MIN_TOKEN_LENGTH = 16
"""Digests are plain SHA-256: what can be guessed from a list of words would be found from its digest."""
MAX_TOKEN_LENGTH = 4096
MAX_NAME_LENGTH = 64
DIGEST_PREFIX = "sha256:"
AUTHORIZATION = "authorization"
"""Key of the metadata, and name of the header."""
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

        How long it takes says nothing of the tokens: digests are compared, all of them, each in constant time.
        """
        digest = digest_of(token)
        names = [name for known, name in self._names_by_digest.items() if hmac.compare_digest(known, digest)]
        if not names:
            raise UnauthenticatedError
        return names[0]


class KnownTokens:
    """The tokens of a file, which may change.

    A file that gets empty lets nobody in: whoever empties it wants that, and to keep the tokens instead would keep a
    door open that somebody closed. At the start, where it can only be a mistake, it is one.
    """

    def __init__(self, path: str):
        """Raises InvalidFieldError."""
        if read_tokens(path).is_empty:
            raise InvalidFieldError("tokens_file", f"{path} holds no token")
        self._watched = WatchedFiles([path], lambda: _read_again(path))

    @property
    def table(self) -> TokenTable:
        """As the file has it now; the same object until that changes."""
        return self._watched.current()

    def client_of(self, authorization: str | None) -> str:
        """The name of the client that sent this header, None for none. Raises UnauthenticatedError."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != SCHEME:
            raise UnauthenticatedError
        return self.table.name_of(token.strip())


def digest_of(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="backslashreplace")).digest()


def read_tokens(path: str) -> TokenTable:
    """Raises InvalidFieldError, which names the line and not what is in it."""
    try:
        text = read_secret_file("tokens_file", path).decode()
    except UnicodeDecodeError:
        raise InvalidFieldError("tokens_file", f"{path} is no text in UTF-8") from None
    try:
        return parse_tokens(text.splitlines())
    except ValueError as error:
        raise InvalidFieldError("tokens_file", f"{path}: {error}") from None


def _read_again(path: str) -> TokenTable:
    """Raises InvalidFieldError."""
    table = read_tokens(path)
    if table.is_empty:
        logger.warning("%s holds no token any more: nobody is let in", path)
    return table


def parse_tokens(lines: Iterable[str]) -> TokenTable:
    """Raises ValueError."""
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
        raise ValueError("must have the 64 hexadecimal digits of a SHA-256 digest behind sha256:")
    return digest


def checked_token(token: str) -> str:
    """The token. Raises ValueError for one that could be guessed or not be sent."""
    if not MIN_TOKEN_LENGTH <= len(token) <= MAX_TOKEN_LENGTH:
        raise ValueError(f"must have a token of {MIN_TOKEN_LENGTH} to {MAX_TOKEN_LENGTH} characters")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("must have a token of printable ASCII characters without spaces")
    return token


def read_token(path: str) -> str:
    """The one token that a file holds. Raises InvalidFieldError."""
    text = read_secret_file("token_file", path).decode("ascii", errors="replace").strip()
    try:
        return checked_token(text)
    except ValueError as error:
        raise InvalidFieldError("token_file", f"{path} {error}") from None


def token_of(security: ChannelSecurity) -> str | None:
    """The token to show, as the file has it now; None for none. Raises InvalidFieldError."""
    if security.token_file is not None:
        return read_token(security.token_file)
    try:
        return None if security.token is None else checked_token(security.token)
    except ValueError as error:
        raise InvalidFieldError("token", str(error)) from None


def bearer(token: str) -> str:
    """The header's value."""
    return f"Bearer {token}"
