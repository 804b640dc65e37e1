"""The one served model: the target, whose text is generated."""

import time
from typing import Any

from starlette.exceptions import HTTPException

from coordinator.serving.serving import Serving

STARTED_AT = int(time.time())
"""Since when this process serves it, in seconds since 1970."""


class UnknownModelError(HTTPException):
    """The request names a model that is not served."""

    def __init__(self, served: str):
        super().__init__(404, f"model: does not exist here; {served!r} is served")


def served_name(serving: Serving) -> str:
    """What the model is called in answers: the name that the coordinator was given, else the target's own."""
    return serving.pair.config.served_model_name or serving.pair.target.info.model_name


def check_model(name: str | None, serving: Serving) -> None:
    """Raises UnknownModelError. A request without a model gets the one that is served. The target's own name holds,
    whatever the coordinator was given: it is in metrics and in the log."""
    if name not in (None, "", served_name(serving), serving.pair.target.info.model_name):
        raise UnknownModelError(served_name(serving))


def model_document(serving: Serving) -> dict[str, Any]:
    """As /v1/models describes it."""
    pair = serving.pair
    info = pair.target.info
    return {
        "id": served_name(serving),
        "object": "model",
        "created": STARTED_AT,
        "owned_by": "specpair",
        "max_model_len": info.max_model_len,
        "max_num_speculative_tokens": min(pair.config.max_num_speculative_tokens, info.max_num_speculative_tokens),
    }
