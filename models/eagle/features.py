"""The target's features: what enters some of its layers, for every token of the conversations, kept on disk.

A layer's number names its input, as speculators and vLLM count: 0 is the embedding, the number of layers is what leaves
the last one, before the final norm.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from models.smollm2.batches import Talk


class Taps:
    """Reads the residual stream of a target's pass."""

    def __init__(self, target: LlamaForCausalLM, layers: Sequence[int]) -> None:
        self.target, self.found = target, dict[int, Tensor]()
        self.layers = list(layers)
        last = len(target.model.layers)
        for number in self.layers:
            if number == last:
                target.model.layers[last - 1].register_forward_hook(self.leaving(number))
            else:
                target.model.layers[number].register_forward_pre_hook(self.entering(number))

    def entering(self, number: int):
        def hook(_module, inputs) -> None:
            self.found[number] = inputs[0]

        return hook

    def leaving(self, number: int):
        def hook(_module, _inputs, output) -> None:
            self.found[number] = output

        return hook

    @torch.inference_mode()
    def __call__(self, token_ids: Tensor) -> Tensor:
        """bf16 `[rows, tokens, layers, width]` of token ids padded on the right."""
        self.target.model(token_ids, use_cache=False)
        return torch.stack([self.found[number] for number in self.layers], dim=2)


class FeatureStore:
    """Features of a list of conversations, in one file; each conversation's are computed once."""

    def __init__(self, folder: Path, talks: Sequence[Talk], taps: Taps) -> None:
        lengths = np.array([len(talk.token_ids) for talk in talks])
        self.starts, self.taps = np.concatenate([[0], np.cumsum(lengths)]), taps
        self.places = {talk.number: place for place, talk in enumerate(talks)}
        self.talks = talks
        width = taps.target.config.hidden_size
        shape = (int(self.starts[-1]), len(taps.layers), width)
        folder.mkdir(parents=True, exist_ok=True)
        self.values = mapped(folder / "features.bf16", np.dtype(np.int16), shape)
        self.known = mapped(folder / "known.bool", np.dtype(np.bool_), (len(talks),))

    def prepare(self, part: int, parts: int, rows: int = 16) -> None:
        """Computes what is missing of every `parts`-th group of conversations of about the same length."""
        order = sorted(range(len(self.talks)), key=lambda place: len(self.talks[place].token_ids))
        groups = [order[start : start + rows] for start in range(0, len(order), rows)]
        chosen = np.random.default_rng(0).permutation(len(groups))[part::parts]
        for count, index in enumerate(chosen):
            self.compute([place for place in groups[index] if not self.known[place]])
            if count % 20 == 19:
                print(f"{count + 1} of {len(chosen)} groups", flush=True)

    def compute(self, places: list[int]) -> None:
        if not places:
            return
        talks = [self.talks[place] for place in places]
        token_ids = torch.zeros(len(talks), max(len(talk.token_ids) for talk in talks), dtype=torch.long)
        for row, talk in enumerate(talks):
            token_ids[row, : len(talk.token_ids)] = torch.from_numpy(talk.token_ids.astype(np.int64))
        features = self.taps(token_ids).view(torch.int16).numpy()
        for row, place in enumerate(places):
            length = len(self.talks[place].token_ids)
            self.values[self.starts[place] : self.starts[place] + length] = features[row, :length]
            self.known[place] = True

    def read(self, talks: Sequence[Talk]) -> Tensor:
        """bf16 `[talks, longest, layers, width]`, zero after a conversation's end."""
        places = [self.places[talk.number] for talk in talks]
        self.compute([place for place in places if not self.known[place]])
        longest = max(len(talk.token_ids) for talk in talks)
        result = torch.zeros(len(talks), longest, *self.values.shape[1:], dtype=torch.int16)
        for row, place in enumerate(places):
            start, end = self.starts[place], self.starts[place + 1]
            result[row, : end - start] = torch.from_numpy(self.values[start:end].copy())
        return result.view(torch.bfloat16)


def mapped(path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> np.memmap:
    """A file as an array, made of zeros if it is not there."""
    mode = "r+" if path.exists() else "w+"
    return np.memmap(path, dtype=dtype, mode=mode, shape=shape)
