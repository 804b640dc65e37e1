"""The limit on the number of logprobs in one answer."""

from dataclasses import replace

from coordinator.requests.request import GenerationRequest
from specpair.errors import InvalidFieldError

MAX_LOGPROB_COUNT = 300_000
"""As JSON about 20 MB, and a second of work."""


def within_logprob_limit(request: GenerationRequest, *, has_max_tokens: bool, shares: int = 1) -> GenerationRequest:
    """The request, with max_tokens lowered to the limit if the client did not set it.

    `shares` is the number of requests that are answered together and share the limit. Raises InvalidFieldError.
    """
    limit = MAX_LOGPROB_COUNT // shares
    of_prompt, of_token = prompt_logprob_count(request), token_logprob_count(request)
    if of_prompt + request.max_tokens * of_token <= limit:
        return request
    room = (limit - of_prompt) // of_token if of_token else 0
    if has_max_tokens or room < max(request.sampling.min_tokens, len(request.resumed_ids), 1):
        raise _refusal(request, limit)
    return replace(request, max_tokens=room)


def prompt_logprob_count(request: GenerationRequest) -> int:
    """Number of logprobs of the prompt's tokens. With echo and logprobs, every output has them."""
    if request.prompt_logprobs is None:
        return 0
    repetitions = request.n if request.echo and request.logprobs is not None else 1
    return repetitions * len(request.prompt_ids) * (1 + request.prompt_logprobs)


def token_logprob_count(request: GenerationRequest) -> int:
    """Number of logprobs for one token position, over all outputs."""
    return 0 if request.logprobs is None else request.best_of * (1 + request.logprobs)


def _refusal(request: GenerationRequest, limit: int) -> InvalidFieldError:
    fields = {
        "n": request.best_of,
        "logprobs": request.logprobs,
        "prompt_logprobs": request.prompt_logprobs,
        "max_tokens": request.max_tokens,
    }
    given = ", ".join(f"{name} {value}" for name, value in fields.items() if value is not None)
    wanted = prompt_logprob_count(request) + request.max_tokens * token_logprob_count(request)
    problem = f"{given} and a prompt of {len(request.prompt_ids)} tokens make {wanted} logprobs; at most {limit} fit"
    field = "prompt_logprobs" if request.logprobs is None else "logprobs"
    return InvalidFieldError(field, problem, limit=limit)
