"""Held-out agreement, overlap and tokens per round of a draft."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from models.smollm2.acceptance import tokens_per_round
from models.smollm2.batches import Batch, Talk, columns_of, join
from models.smollm2.draft import Draft
from models.smollm2.held_out import read_held_out

LENGTHS = range(1, 9)
"""Values of K."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """Of one group of answers at one temperature."""

    tokens: int
    acceptance: float
    """Mean agreement at temperature 0, mean overlap at temperature 1."""
    rounds: dict[int, float]
    """Tokens per round for each K."""


@torch.inference_mode()
def answer_chances(draft: Draft, output_token_ids: list[int], talk: Talk) -> tuple[np.ndarray, np.ndarray]:
    """For each answer token: its chance to be accepted given that it is the target's, and the overlap there."""
    batch = join([talk], columns_of(output_token_ids, len(draft.embeddings)))
    hidden = draft(batch.token_ids)[0][batch.places]
    head = draft.embeddings[output_token_ids]
    return chances_of((hidden.to(head.dtype) @ head.mT).float(), output_token_ids, talk, batch)


def chances_of(logits: Tensor, output_token_ids: list[int], talk: Talk, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """The same from a draft's logits `[answer tokens, output tokens]`."""
    said = torch.from_numpy(talk.token_ids[talk.places + 1].astype(np.int64))
    if talk.temperature == 0:
        agrees = (torch.tensor(output_token_ids)[logits.argmax(-1)] == said).double().numpy()
        return agrees, agrees
    known = torch.from_numpy(talk.top_ids.astype(np.int64))
    p = torch.from_numpy(talk.top_logs).double().exp()
    q = logits.softmax(-1).double().gather(1, batch.teacher.columns) * (batch.teacher.probabilities > 0)
    is_said = known == said[:, None]
    # A token that the target did not keep is counted as rejected; so both figures are lower bounds.
    chances = ((q / p.clamp_min(1e-12)).clamp(max=1) * is_said).sum(-1)
    return chances.numpy(), torch.minimum(p, q).sum(-1).numpy()


def measure(draft: Draft, output_token_ids: list[int], talks: list[Talk], measured: bool) -> dict:
    """Results by temperature and category ("all" among them), over the prompts to measure or those to choose by."""
    draft.eval()
    results = grouped(lambda talk: answer_chances(draft, output_token_ids, talk), talks, measured)
    draft.train()
    return results


def grouped(
    chances: Callable[[Talk], tuple[np.ndarray, np.ndarray]], talks: list[Talk], measured: bool
) -> dict[tuple[float, str], Result]:
    """Results by temperature and category from the `chances` of each answer."""
    prompts = read_held_out()
    groups: dict[tuple[float, str], list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)
    for talk in talks:
        prompt = prompts[talk.number // 2]
        if prompt.measured == measured:
            pair = chances(talk)
            for category in (prompt.category, "all"):
                groups[talk.temperature, category].append(pair)
    return {key: summary(pairs) for key, pairs in sorted(groups.items())}


def summary(pairs: list[tuple[np.ndarray, np.ndarray]]) -> Result:
    chances = [pair[0] for pair in pairs]
    accepted = np.concatenate([pair[1] for pair in pairs])
    rounds = {k: tokens_per_round(chances, k) for k in LENGTHS}
    return Result(tokens=len(accepted), acceptance=float(accepted.mean()), rounds=rounds)
