"""The final check that a model is served correctly: compares our forward pass with the model's own.

It runs once at load. Two sequences are fed together in uneven chunks; one is rolled back and fed again. Every logit
must agree with a plain forward pass of transformers over the whole sequence, with the weights that are served where
these are quantised. A deterministic model must also give the same bits when the sequences are fed alone and cut at
other positions.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from specpair.caches.holding import Holding, Segment
from specpair.errors import ModelRefusedError
from specpair.model_info import NOT_QUANTISED
from specpair.models.attention import NAME
from specpair.models.batch import Batch
from specpair.models.loading import LoadedModel
from specpair.models.refusals import refuse_nan
from specpair.models.runner import Runner
from specpair.models.weight_format import FORMATS
from specpair.sequences.encoder_input import EncoderInput

LENGTH = 24
LEAST_LENGTH = 6
STEP = 3
FEW = 6
TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 0.15}
"""By the type of the model. Where an input is rounded to a few bits, its last bit may decide to which side."""
COARSE_TOLERANCE = 0.3
"""For formats that round inputs: up to 0.15 was measured, and 0.65 or more with a wrong mask."""


def check(loaded: LoadedModel, runner: Runner, plain: Callable[[Tensor], Tensor] | None = None) -> None:
    """Raises ModelRefusedError if chunked, batched, rolled-back and plain logits differ. `plain` gives the plain ones
    `[length, vocabulary]` where the model is not in this process alone."""
    ids = random_tokens(loaded, runner)
    expected = torch.stack([plain_logits(loaded, row) if plain is None else plain(row) for row in ids])
    refuse_nan(loaded.model, expected)
    actual = chunked_logits(runner, ids)
    refuse_if_different(loaded, actual, expected)


def check_few_rows(loaded: LoadedModel, runner: Runner) -> None:
    """The same for passes of one token and of a few, which may be computed in another way than larger ones. Raises
    ModelRefusedError."""
    ids = random_tokens(loaded, runner)[0, :FEW]
    expected = plain_logits(loaded, ids)
    for step in (1, STEP):
        refuse_if_different(loaded, fed_in_steps(runner, ids.tolist(), step), expected)


def refuse_if_different(loaded: LoadedModel, actual: Tensor, expected: Tensor) -> None:
    """Raises ModelRefusedError if logits differ by more than rounding."""
    difference = largest_difference(actual, expected)
    if not difference <= tolerance_of(loaded):
        raise ModelRefusedError(
            f"{loaded.model.config.model_type}: logits through the cache differ from the model's own"
            f" by {difference:.2g} of their range; its attention cannot be served correctly"
        )


def tolerance_of(loaded: LoadedModel) -> float:
    """The largest difference that is rounding, relative to the largest logit."""
    rounding = COARSE_TOLERANCE if loaded.is_coarse else TOLERANCE.get(loaded.facts.dtype, 0.15)
    return max(rounding, FORMATS[loaded.facts.packing].tolerance)


def largest_difference(actual: Tensor, expected: Tensor) -> float:
    """The largest difference relative to the largest expected logit; NaN unless the same logits are -inf, which are
    those of tokens that the model never gives."""
    absent = expected.isneginf()
    if not torch.equal(actual.isneginf(), absent):
        return float("nan")
    scale = expected.masked_fill(absent, 0.0).abs().max().clamp(min=1.0)
    return ((actual - expected).masked_fill(absent, 0.0).abs().max() / scale).item()


def check_deterministic(loaded: LoadedModel, runner: Runner) -> None:
    """Raises ModelRefusedError if any bit of a logit depends on how the tokens were cut and batched."""
    ids = random_tokens(loaded, runner)
    alone = torch.stack([fed_in_steps(runner, row) for row in ids.tolist()])
    if not torch.equal(chunked_logits(runner, ids), alone):
        is_quantised = loaded.facts.packing != NOT_QUANTISED
        option = f"--quantization {loaded.facts.packing}" if is_quantised else "--deterministic"
        raise ModelRefusedError(
            f"{loaded.model.config.model_type}: logits depend on the other tokens of a forward pass even with fixed"
            f" shapes; it cannot be served with {option}"
        )


def random_tokens(loaded: LoadedModel, runner: Runner) -> Tensor:
    """Two sequences `[2, length]` that fit into the cache together."""
    cache, longest = runner.cache, loaded.facts.max_model_len
    if longest < LEAST_LENGTH:
        raise ModelRefusedError(
            f"sequences of at most {longest} tokens are too short for the check of the model, which takes"
            f" {LEAST_LENGTH}: see --max-model-len, and max_position_embeddings in config.json"
        )
    length = min(LENGTH, longest, cache.block_count // 2 * cache.block_size)
    if length < LEAST_LENGTH:
        raise ModelRefusedError(f"a cache of {cache.block_count} blocks is too small for the check of the model")
    return torch.randint(loaded.facts.vocab_size, (2, length), generator=torch.Generator().manual_seed(0))


@torch.inference_mode()
def plain_logits(loaded: LoadedModel, ids: Tensor) -> Tensor:
    """`[length, vocabulary]`, computed with transformers' own eager attention and masks."""
    loaded.model.set_attn_implementation("eager")
    try:
        output = loaded.model(input_ids=ids[None].to(loaded.facts.device), use_cache=False)
    finally:
        loaded.model.set_attn_implementation(NAME)
    return output.logits[0].float().cpu()


def chunked_logits(runner: Runner, ids: Tensor, read: list[EncoderInput] | None = None) -> Tensor:
    """`[2, length, vocabulary]`, computed in uneven chunks of both sequences, with a rollback in between.

    `read` is what an encoder reads for them.
    """
    rows: list[list[int]] = ids.tolist()
    holdings = [runner.cache.open([]) for _ in rows]
    try:
        third = len(rows[0]) // 3
        first = run_chunks(runner, holdings, [rows[0][:third], rows[1][: third + 1]], read)
        kept = third // 2
        runner.cache.truncate_to(holdings[0], kept)
        second = run_chunks(runner, holdings, [rows[0][kept:], rows[1][third + 1 :]], read)
        return torch.stack([torch.cat([first[0][:kept], second[0]]), torch.cat([first[1], second[1]])])
    finally:
        for holding in holdings:
            runner.cache.free(holding)


def fed_in_steps(runner: Runner, token_ids: list[int], step: int = STEP) -> Tensor:
    """`[length, vocabulary]` of a sequence fed alone, a few tokens at a time."""
    holding = runner.cache.open([])
    try:
        steps = [token_ids[start : start + step] for start in range(0, len(token_ids), step)]
        return torch.cat([run_chunks(runner, [holding], [fed])[0] for fed in steps])
    finally:
        runner.cache.free(holding)


def run_chunks(
    runner: Runner, holdings: list[Holding], chunks: list[list[int]], read: list[EncoderInput] | None = None
) -> list[Tensor]:
    """Feeds a chunk of each sequence in one forward pass. Returns the logits of each, `[chunk, vocabulary]`."""
    segments = []
    for holding, chunk in zip(holdings, chunks, strict=True):
        segments.append(Segment(holding, holding.length, len(chunk)))
        runner.cache.append(holding, len(chunk))
    counts = [len(chunk) for chunk in chunks]
    batch = Batch.of_chains(segments, [token for chunk in chunks for token in chunk], counts)
    batch = replace(batch, encoder_inputs=read or [])
    return [part.cpu() for part in runner.forward(batch).logits.split(counts)]
