"""Which pages of other sites a browser lets call the API (CORS)."""

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

METHODS = ("GET", "HEAD", "POST")
SHOWN_HEADERS = ("retry-after", "x-request-id")
"""Headers of an answer that such a page may read, besides those that any page may."""


def open_to(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """The app, with answers that name the page's origin if it is one of these, and answers to the browser's questions
    before a call. Those hold no secret, so nobody needs a token for them."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=METHODS,
        allow_headers=["*"],
        allow_private_network=True,  # browsers ask so before a public page calls this machine or its network
        expose_headers=SHOWN_HEADERS,
    )
