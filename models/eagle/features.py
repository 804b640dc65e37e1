"""The target's features: what enters some of its layers, for every token of the conversations.

`python -m models.smollm2 generate --features 8,15,22,27,30` keeps them while it decodes, so that they cost nothing but
disk. A layer's number names its input, as speculators and vLLM count: 0 is the embedding, the number of layers is what
leaves the last one, before the final norm.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from models.smollm2.batches import Talk
from models.smollm2.shards import features_path, read_shard, shard_paths

KEPT = (8, 15, 22, 27, 30)
"""The layers whose inputs are in the files."""


class FeatureStore:
    """Features of the conversations of a folder, read from disk when they are needed."""

    def __init__(self, folder: Path, layers: Sequence[int]) -> None:
        self.folder, self.known = folder, set[Path]()
        self.columns = [KEPT.index(layer) for layer in layers]
        self.places: dict[int, np.ndarray] = {}

    def refresh(self) -> None:
        """Adds the shards that came since."""
        for path in shard_paths(self.folder):
            if path in self.known:
                continue
            self.known.add(path)
            values, shard = np.load(features_path(path), mmap_mode="r"), read_shard(path)
            ends = np.cumsum(shard.lengths)
            for number, start, end in zip(shard.numbers, ends - shard.lengths, ends, strict=True):
                self.places[int(number)] = values[start:end]

    def read(self, talks: Sequence[Talk]) -> Tensor:
        """bf16 `[talks, longest, layers, width]`, zero after a conversation's end."""
        if any(talk.number not in self.places for talk in talks):
            self.refresh()
        found = [torch.from_numpy(self.places[talk.number][:, self.columns].copy()) for talk in talks]
        return torch.nn.utils.rnn.pad_sequence(found, batch_first=True).view(torch.bfloat16)
