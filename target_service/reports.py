"""What a verdict reports beside its tokens: logprobs, and how likely draft and target found the proposed tokens."""

import math
from dataclasses import replace

from torch import Tensor

from specpair.speculation.logprobs import token_logprobs
from specpair.speculation.sampling import SamplingRows, probabilities
from target_service.verify_work import VerifyWork


def add_logprobs(works: list[VerifyWork], logits: Tensor) -> None:
    """For the works that want them: what the bare logits `[sum of (K + 1), vocabulary]` say of the committed tokens."""
    first, rows, tokens, top_counts, owners = 0, [], [], [], []
    for work in works:
        if work.options.logprobs is not None and work.error is None:
            committed = [*work.accepted_tokens, work.next_token]
            rows.extend(range(first, first + len(committed)))
            tokens += committed
            top_counts += [work.options.logprobs] * len(committed)
            owners += [work] * len(committed)
        first += work.row_count
    if rows:
        entries = token_logprobs(logits[rows], tokens, top_counts)
        for work, entry in zip(owners, entries, strict=True):
            work.logprobs.append(entry)


def add_probabilities(works: list[VerifyWork], adjusted: Tensor) -> None:
    """For the works that want them: the target's probability of each proposed token, from `[sum of (K + 1), V]`."""
    first = 0
    for work in works:
        count = len(work.call.proposed)
        if work.call.include_probabilities and count and not work.done:
            sampling = replace(work.options.sampling, temperature=work.options.sampling.temperature or 1.0)
            rows = probabilities(adjusted[first : first + count], SamplingRows([sampling], [count], adjusted.device))
            work.target_probabilities = rows[range(count), work.call.proposed].tolist()
        first += work.row_count


def sent_probabilities(work: VerifyWork) -> list[float]:
    """The draft's probability of each proposed token; none where it is no news (greedy) or no distribution was sent."""
    draft = work.call.draft
    if work.options.sampling.is_greedy or not draft.token_ids.shape[1]:
        return []
    return [0.0 if math.isinf(value) else value for value in draft.drawn.tolist()]
