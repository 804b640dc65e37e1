"""Parameters that nobody here knows: they are ignored, but named in the log, so that a misspelt one can be found."""

import logging
import re
from collections.abc import Collection
from itertools import islice

from fastapi import Request
from pydantic import BaseModel

WITHOUT_EFFECT = frozenset(
    (
        *("metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        *("safety_identifier", "service_tier", "store"),
    )
)
"""OpenAI's parameters that no text depends on. A client that has them sends them with each request."""
NAMED_COUNT = 8
"""Most names in a log line."""
LOOKED_AT = 1000
"""Most names that are looked at for it."""
PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Names that look like one. Others are counted: anything may be in them, a text or a line of a log."""

logger = logging.getLogger(__name__)


async def log_unknown(request: Request, known: type[BaseModel]) -> None:
    """One line for a request with unknown parameters: their names, never their values."""
    body = await request.json()  # parsed before, and kept by the request
    names = body.keys() - known.model_fields - WITHOUT_EFFECT
    if names:
        logger.warning("unknown parameters are ignored: %s", listed(names), extra={"request": request.state.request_id})


def listed(names: Collection[str]) -> str:
    """The plain ones of these names, at most NAMED_COUNT, and the number of the others."""
    shown = sorted(name for name in islice(names, LOOKED_AT) if PLAIN.fullmatch(name))[:NAMED_COUNT]
    left = len(names) - len(shown)
    return ", ".join([*shown, f"{left} not named"] if left else shown)
