"""The one served model: the target, whose text is generated."""

from typing import Any

from starlette.exceptions import HTTPException

from coordinator.serving.serving import Serving


class UnknownModelError(HTTPException):
    """The request names a model that is not served."""

    def __init__(self, served: str):
        super().__init__(404, f"model: does not exist here; {served!r} is served")


def check_model(name: str | None, serving: Serving) -> None:
    """Raises UnknownModelError. A request without a model gets the one that is served."""
    served = serving.pair.target.info.model_name
    if name not in (None, "", served):
        raise UnknownModelError(served)


def model_document(serving: Serving) -> dict[str, Any]:
    """As /v1/models describes it."""
    pair = serving.pair
    info = pair.target.info
    return {
        "id": info.model_name,
        "object": "model",
        "created": 0,
        "owned_by": "specpair",
        "max_model_len": info.max_model_len,
        "max_num_speculative_tokens": min(pair.config.max_num_speculative_tokens, info.max_num_speculative_tokens),
    }
