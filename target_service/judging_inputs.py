"""What the rules need of verification works: distributions and noise."""

import numpy as np
from torch import Tensor

from specpair.speculation.device_randomness import as_signed
from specpair.speculation.randomness import Domain, random_words, uniforms
from specpair.speculation.sampling import SamplingRows, probabilities
from target_service.verify_work import VerifyWork


def distributions(works: list[VerifyWork], adjusted: Tensor) -> Tensor:
    """The target's distributions, `[sum of (K + 1), vocabulary]`."""
    counts = [work.row_count for work in works]
    return probabilities(adjusted, SamplingRows([work.options.sampling for work in works], counts, adjusted.device))


def acceptance_noise(works: list[VerifyWork], most: int) -> np.ndarray:
    """Uniforms `[works, most]`, keyed by the step that verifies the block and the offset in the block."""
    words = np.empty((len(works), most), dtype=np.uint64)
    for row, work in enumerate(works):
        words[row] = random_words(work.options.sampling.seed, Domain.ACCEPT, work.step, 0, most)
    return uniforms(words)


def next_keys(works: list[VerifyWork]) -> list[np.ndarray]:
    """What keys the noise of the target's own token for each work: seeds and steps, int64 `[works]`, as unsigned
    bits."""
    return [as_signed([work.options.sampling.seed for work in works]), as_signed([work.step for work in works])]
