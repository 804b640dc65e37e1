"""A metrics endpoint that is scraped repeatedly."""

import http.client
import ssl
import time
import urllib.error
import urllib.request
from collections import deque
from typing import NamedTuple

from command.failures import WRONG_USE, CommandError
from command.top.exposition import Exposition
from specpair.security.credentials import http_client_context
from specpair.security.settings import PLAIN, ChannelSecurity, TlsFiles
from specpair.security.tokens import AUTHORIZATION, bearer, token_of

MAX_BYTES = 16 * 1024 * 1024
TIMEOUT = 2.0
UNAUTHENTICATED = 401
NOT_REACHED = "not reached"


class Scrape(NamedTuple):
    """One answer of an endpoint."""

    clock: float
    """Unix time."""
    exposition: Exposition


class Endpoint:
    """One endpoint with its latest answers."""

    def __init__(self, url: str, window: float, access: ChannelSecurity = PLAIN):
        """`window` is the period to remember, in seconds. Raises CommandError if `url` is not a URL, and
        InvalidFieldError for certificates and tokens that cannot be used."""
        if not url.startswith(("http://", "https://")):
            raise CommandError(f"{url} is not a URL; it must be like http://127.0.0.1:8000/metrics", WRONG_USE)
        self.url = url
        self._opener = opener(access.tls)
        self._token = token_of(access)
        self.problem: str | None = "not asked yet"
        """Why the last scrape failed; None if it did not."""
        self._window = window
        self._scrapes: deque[Scrape] = deque()

    @property
    def latest(self) -> Scrape | None:
        """None before the first answer."""
        return self._scrapes[-1] if self._scrapes else None

    @property
    def earliest(self) -> Scrape | None:
        """The oldest answer within the window; None before the second answer."""
        return self._scrapes[0] if len(self._scrapes) > 1 else None

    def ask(self) -> None:
        """Scrapes once; keeps the answer or the problem."""
        try:
            with self._opener.open(self._request(), timeout=TIMEOUT) as response:
                text = response.read(MAX_BYTES).decode()
            self.add(Scrape(time.time(), Exposition.parse(text)))
        except (OSError, http.client.HTTPException) as error:
            self.problem = problem_of(error)
        except ValueError:
            self.problem = "no metrics there"

    def _request(self) -> urllib.request.Request:
        request = urllib.request.Request(self.url)
        if self._token is not None:
            request.add_unredirected_header(AUTHORIZATION, bearer(self._token))  # not sent on to a redirect's host
        return request

    def add(self, scrape: Scrape) -> None:
        self.problem = None
        self._scrapes.append(scrape)
        while self._scrapes[0].clock < scrape.clock - self._window:
            self._scrapes.popleft()


def opener(tls: TlsFiles | None) -> urllib.request.OpenerDirector:
    """Uses no proxy: it would look for the loopback address on its own machine. Raises InvalidFieldError."""
    context = http_client_context(tls or TlsFiles())
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))


def problem_of(error: Exception) -> str:
    """The reason if access was denied; otherwise that the service was not reached."""
    if isinstance(error, urllib.error.HTTPError) and error.code == UNAUTHENTICATED:
        return "needs a bearer token: see --token-file"
    reason = getattr(error, "reason", error)
    return f"TLS: {reason.reason or reason}" if isinstance(reason, ssl.SSLError) else NOT_REACHED
