"""The final check that an encoder-decoder model is served correctly: compares our passes with the model's own.

It runs once at load, as `specpair.models.self_check` does for other models: two sequences with different inputs of the
encoder are fed together in uneven chunks, one is rolled back and fed again, and every logit must agree.
"""

from typing import Any

import torch
from torch import Tensor

from specpair.errors import ModelRefusedError
from specpair.models.encoder_decoder_attention import NAME
from specpair.models.loading import LoadedModel
from specpair.models.refusals import first_line, refuse_nan
from specpair.models.runner import Runner
from specpair.models.self_check import chunked_logits, largest_difference, random_tokens, tolerance_of
from specpair.sequences.encoder_input import EncoderInput

ENCODER_LENGTHS = (7, 5)


def check_encoder_decoder(loaded: LoadedModel, runner: Runner) -> None:
    """Raises ModelRefusedError if chunked, batched, rolled-back and plain logits differ."""
    ids = random_tokens(loaded, runner)
    generator = torch.Generator().manual_seed(1)
    assert loaded.facts.encoder is not None
    longest = loaded.facts.encoder.max_encoder_len
    read = [torch.randint(loaded.facts.vocab_size, (min(n, longest),), generator=generator) for n in ENCODER_LENGTHS]
    expected = torch.stack([plain_logits(loaded, *pair) for pair in zip(read, ids, strict=True)])
    refuse_nan(loaded.model, expected)
    kind = loaded.model.config.model_type
    try:
        actual = chunked_logits(runner, ids, [EncoderInput(tuple(row.tolist())) for row in read])
    except (TypeError, KeyError, AttributeError, RuntimeError, ValueError) as error:
        raise ModelRefusedError(f"{kind} cannot run on packed batches: {first_line(error)}") from error
    difference = largest_difference(actual, expected)
    if not difference <= tolerance_of(loaded):
        raise ModelRefusedError(
            f"{kind}: logits through the cache differ from the model's own"
            f" by {difference:.2g} of their range; its attention cannot be served correctly"
        )


@torch.inference_mode()
def plain_logits(loaded: LoadedModel, read: Tensor, ids: Tensor) -> Tensor:
    """`[length, vocabulary]`, computed with transformers' own eager attention and masks."""
    model: Any = loaded.model
    device = loaded.facts.device
    model.set_attn_implementation("eager")
    try:
        output = model(input_ids=read[None].to(device), decoder_input_ids=ids[None].to(device), use_cache=False)
    finally:
        model.set_attn_implementation(NAME)
    return output.logits[0].float().cpu()
