"""The one served model, the target, whose text is generated; and its names."""

import time
from collections.abc import Sequence
from typing import Any

from starlette.exceptions import HTTPException

from coordinator.serving.serving import Serving

STARTED_AT = int(time.time())
"""Since when this process serves it, in seconds since 1970."""


class UnknownModelError(HTTPException):
    """The request names a model that is not served."""

    def __init__(self, served: Sequence[str]):
        names = " or ".join(map(repr, served))
        super().__init__(404, f"model: does not exist here; {names} is served")


def served_names(serving: Serving) -> tuple[str, ...]:
    """What the model is called, at least one name: those that the coordinator was given, else the target's own."""
    return serving.pair.config.served_model_names or (serving.pair.target.info.model_name,)


def served_name(serving: Serving) -> str:
    """What the model is called in answers: its first name."""
    return served_names(serving)[0]


def check_model(name: str | None, serving: Serving) -> None:
    """Raises UnknownModelError. A request without a model gets the one that is served. The target's own name holds,
    whatever the coordinator was given: it is in metrics and in the log."""
    names = served_names(serving)
    if name not in (None, "", *names, serving.pair.target.info.model_name):
        raise UnknownModelError(names)


def model_documents(serving: Serving) -> list[dict[str, Any]]:
    """As /v1/models describes it: an entry for each name."""
    return [_document(name, serving) for name in served_names(serving)]


def model_document(name: str, serving: Serving) -> dict[str, Any]:
    """As /v1/models/NAME describes it; under the target's own name, where that is none of those given, by the first
    name. Raises UnknownModelError."""
    check_model(name, serving)
    names = served_names(serving)
    return _document(name if name in names else names[0], serving)


def _document(name: str, serving: Serving) -> dict[str, Any]:
    pair = serving.pair
    info = pair.target.info
    return {
        "id": name,
        "object": "model",
        "created": STARTED_AT,
        "owned_by": "specpair",
        "max_model_len": info.max_model_len,
        "max_num_speculative_tokens": min(pair.config.max_num_speculative_tokens, info.max_num_speculative_tokens),
    }
