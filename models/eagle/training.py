"""Training of a head: what the draft's trainer does, over features and several unrolled steps."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from models.eagle.features import FeatureStore
from models.eagle.head import Head
from models.eagle.measure import measure
from models.smollm2.batches import Batch, Talk, join
from models.smollm2.decoder import DTYPE
from models.smollm2.training import Plan, Trainer

DECAY = 0.8
"""Weight of each further step in the loss, as in EAGLE-3."""
UNROLLED = ((0.4, 1), (0.85, 2), (1.0, 3))
"""Up to which part of the run how many steps are unrolled: the first ones need the most examples."""
UNROLLED_LATER = ((0.5, 2), (1.0, 3))
"""The same for a head that was trained before."""


@dataclass(frozen=True, kw_only=True)
class FeatureBatch(Batch):
    features: Tensor
    """bf16 `[rows, length, layers, width]`."""


class HeadTrainer(Trainer):
    """One head over a target whose features are kept."""

    def __init__(
        self,
        head: Head,
        output_token_ids: list[int],
        folder: Path,
        plan: Plan,
        stores: tuple[FeatureStore, FeatureStore],
        *,
        is_begun: bool = False,
    ) -> None:
        """`is_begun` says whether the head was trained before."""
        self.store, self.held_out_store = stores
        self.unrolled = UNROLLED_LATER if is_begun else UNROLLED
        super().__init__(head, output_token_ids, folder, plan)

    def join(self, talks: list[Talk]) -> FeatureBatch:
        batch = join(talks, self.columns)
        return FeatureBatch(
            token_ids=batch.token_ids, places=batch.places, teacher=batch.teacher, features=self.store.read(talks)
        )

    @property
    def steps(self) -> int:
        return next(steps for part, steps in self.unrolled if self.done <= part)

    def loss(self, batch: Batch) -> Tensor:
        assert isinstance(batch, FeatureBatch)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=torch.bfloat16 == DTYPE):
            states = self.draft(batch.features, batch.token_ids, batch.places, self.steps)
        weights = [DECAY**step for step in range(len(states))]
        losses = [weight * self.distance(chosen, batch) for weight, chosen in zip(weights, states, strict=True)]
        return torch.stack(losses).sum() / sum(weights)

    def measure(self, held_out: list[Talk]) -> dict:
        return measure(self.draft, self.output_token_ids, self.held_out_store, held_out, measured=False)
