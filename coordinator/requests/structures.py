"""The structured output of a request, checked."""

from coordinator.requests.reasoning import Reasoning, with_reasoning
from coordinator.requests.structure_checks import StructureChecks
from coordinator.requests.threads import in_thread
from specpair.errors import InvalidFieldError, NotSupportedError
from specpair.model_info import ModelInfo
from specpair.options import SamplingOptions, StructuredOutput
from specpair.rpc.structured_output import FIELD, structured_output_from_proto
from specpair.v1 import coordinator_service_pb2 as pb


async def read_structured_output(
    message: pb.GenerateTokensRequest,
    sampling: SamplingOptions,
    target: ModelInfo,
    checks: StructureChecks | None,
    reasoning: Reasoning | None = None,
) -> StructuredOutput | None:
    """What the outputs have to look like, after their reasoning; None for anything. Raises InvalidFieldError,
    InvalidGrammarError and NotSupportedError."""
    structured = structured_output_from_proto(message.structured_output)
    if structured is None:
        return None
    if not target.masks_tokens:
        raise NotSupportedError(f"{FIELD}: the target has no tokenizer, or no token that ends a text")
    _check_options(message, sampling)
    if checks is not None:
        await checks.check(structured)
    if reasoning is None:
        return structured
    # Checked by itself before, so that a refusal is about what the client sent.
    whole = await in_thread(with_reasoning, structured, reasoning)
    if checks is not None:
        await checks.check(whole)
    return whole


def _check_options(message: pb.GenerateTokensRequest, sampling: SamplingOptions) -> None:
    """Raises InvalidFieldError for options with which a place of the text could be left without any token."""
    refused = {
        "ignore_eos": message.ignore_eos,
        "sampling.min_tokens": sampling.min_tokens > 0,
        "sampling.allowed_token_ids": bool(sampling.allowed_token_ids),
        "sampling.banned_token_ids": bool(sampling.banned_token_ids),
    }
    for field, is_given in refused.items():
        if is_given:
            problem = f"cannot be combined with {FIELD}, which may allow no other token"
            raise InvalidFieldError(field, problem, other=FIELD)
