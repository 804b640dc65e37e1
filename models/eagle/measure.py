"""Held-out agreement, overlap and tokens per round of a head that drafts from its own hidden states."""

import numpy as np
import torch

from models.eagle.features import FeatureStore
from models.eagle.head import Head
from models.smollm2.batches import Talk, columns_of, join
from models.smollm2.measure import LENGTHS, chances_of, grouped

LONGEST = max(LENGTHS)


@torch.inference_mode()
def answer_chances(
    head: Head, output_token_ids: list[int], store: FeatureStore, talk: Talk
) -> tuple[np.ndarray, np.ndarray]:
    """For each answer token and each number of tokens drafted before it in its round: its chance, and the overlap of
    the first."""
    batch = join([talk], columns_of(output_token_ids, len(head.embeddings)))
    steps = head(store.read([talk]), batch.token_ids, batch.places, LONGEST)
    rows = head.embeddings[output_token_ids]
    pairs = [chances_of((hidden.to(rows.dtype) @ rows.mT).float(), output_token_ids, talk, batch) for hidden in steps]
    return np.stack([chances for chances, _ in pairs]), pairs[0][1]


def measure(head: Head, output_token_ids: list[int], store: FeatureStore, talks: list[Talk], measured: bool) -> dict:
    """Results by temperature and category ("all" among them), over the prompts to measure or those to choose by."""
    return grouped(lambda talk: answer_chances(head, output_token_ids, store, talk), talks, measured)
