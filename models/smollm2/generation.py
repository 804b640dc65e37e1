"""The target's conversations, decoded many at once and written in shards."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from models.smollm2.decoder import DTYPE, TOP, Decoder
from models.smollm2.prompts import Conversation, Segment
from models.smollm2.shards import ANSWER, GIVEN, TURN, Record, read_shard, shard_paths, write_shard
from models.smollm2.target import END

Numbered = tuple[int, Conversation]


class Slot:
    """One sequence of the decoder and how far its conversation has come."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.position = 0
        """Tokens that the decoder has seen."""

    def begin(self, numbered: Numbered, prefix: tuple[int, ...]) -> bool:
        """Takes a conversation; true if it begins with the shared prefix, which the decoder need not read again."""
        number, conversation = numbered
        self.record = Record(number=number, temperature=max(s.temperature for s in conversation if s.answer))
        self.segments, self.sampled = list(conversation), 0
        self.extend()
        known = tuple(self.record.token_ids[: len(prefix)]) == prefix and len(self.record.token_ids) > len(prefix)
        self.position = len(prefix) if known else 0
        return known

    def extend(self) -> None:
        """Appends what is given before the next sampled segment."""
        while self.segments and self.segments[0].given:
            given = self.segments.pop(0).given
            self.record.token_ids.extend(given)
            self.record.kinds.extend([GIVEN] * len(given))

    @property
    def samples(self) -> bool:
        """Whether the next token is the target's to choose."""
        return self.position == len(self.record.token_ids)

    @property
    def temperature(self) -> float:
        return self.segments[0].temperature

    def feed(self) -> tuple[int, int]:
        """The next token for the decoder, and its position."""
        self.position += 1
        return self.record.token_ids[self.position - 1], self.position - 1

    def take(self, token: int, top_ids: np.ndarray, top_logs: np.ndarray) -> bool:
        """Notes a sampled token; true if the conversation is over."""
        segment = self.segments[0]
        self.record.token_ids.append(token)
        self.record.kinds.append(ANSWER if segment.answer else TURN)
        self.record.top_ids.append(top_ids)
        self.record.top_logs.append(top_logs)
        self.sampled += 1
        if token != END and self.sampled < segment.most:
            return False
        self.segments.pop(0)
        self.sampled = 0
        if self.segments and token != END:  # a turn that was cut off must end before the next
            self.segments.insert(0, Segment(given=(END,)))
        self.extend()
        return not self.segments


def choose(logits: Tensor, top: tuple[Tensor, Tensor], temperatures: Tensor) -> Tensor:
    """One token for each row: the likeliest at temperature 0, else a draw from the whole vocabulary.

    The likeliest tokens hold nearly all of the probability; only draws beyond them look at the other logits.
    """
    token_ids, logs = top
    chosen = token_ids[:, 0].clone()
    for row in torch.nonzero(temperatures > 0)[:, 0].tolist():
        heat = float(temperatures[row])
        weights = (logs[row] / heat).exp()
        # At temperature 1 the rest is known. Below, it is nearly nothing, and is left out.
        rest = max(0.0, 1.0 - float(weights.sum())) if heat == 1.0 else 0.0
        sums = weights.cumsum(0)
        point = torch.rand(1) * (sums[-1] + rest)
        if point < sums[-1]:
            chosen[row] = token_ids[row, torch.searchsorted(sums, point)[0]]
        else:
            chosen[row] = draw(logits[row].float().index_fill(0, token_ids[row], float("-inf")))
    return chosen


def draw(logits: Tensor) -> int:
    """One draw from `logits` [vocabulary]."""
    sums = (logits - logits.max()).exp().cumsum(0)
    return int(torch.searchsorted(sums, torch.rand(1) * sums[-1]).clamp(max=len(sums) - 1))


class Generator:
    """Decodes conversations until there are none left, in as many slots as the decoder has."""

    def __init__(self, decoder: Decoder, slots: int, prefix: tuple[int, ...], most: int = TOP) -> None:
        self.decoder, self.prefix, self.most = decoder, prefix, most
        self.slots = [Slot() for _ in range(slots)]
        self.prefix_features: list[np.ndarray] = []
        for position, token in enumerate(prefix):
            decoder.step(torch.full((slots,), token), torch.full((slots,), position))
            self.prefix_features.extend(feature_rows(decoder)[:1])
        self.prefix_caches = [
            (layer.keys[: layer.heads, : len(prefix)].clone(), layer.values[: layer.heads, : len(prefix)].clone())
            for layer in decoder.layers
        ]

    def run(self, conversations: Iterator[Numbered]) -> Iterator[Record]:
        """Every finished conversation."""
        busy = {index for index in range(len(self.slots)) if self.begin(index, conversations)}
        while busy:
            token_ids = torch.zeros(len(self.slots), dtype=torch.long)
            positions = torch.zeros(len(self.slots), dtype=torch.long)
            for index in busy:
                token_ids[index], positions[index] = self.slots[index].feed()
            for index in self.sample(token_ids, positions, busy):
                yield self.slots[index].record
                if not self.begin(index, conversations):
                    busy.remove(index)

    def begin(self, index: int, conversations: Iterator[Numbered]) -> bool:
        numbered = next(conversations, None)
        if numbered is None:
            return False
        if self.slots[index].begin(numbered, self.prefix):
            self.decoder.write_prefix(index, self.prefix_caches)
            self.slots[index].record.features.extend(self.prefix_features)
        return True

    def sample(self, token_ids: Tensor, positions: Tensor, busy: set[int]) -> list[int]:
        """One pass and the tokens that it chooses; returns the slots whose conversations are over."""
        hidden = self.decoder.step(token_ids, positions)
        features = feature_rows(self.decoder)
        for index in busy if len(features) else ():
            self.slots[index].record.features.append(features[index])
        rows = [index for index in sorted(busy) if self.slots[index].samples]
        if not rows:
            return []
        hidden = hidden[rows]
        logits = self.decoder.head(hidden.to(DTYPE))
        top = self.decoder.top(hidden, logits, self.most)
        heat = torch.tensor([self.slots[index].temperature for index in rows])
        chosen = choose(logits, top, heat).tolist()
        top_ids, top_logs = top[0].numpy().astype(np.uint16), top[1].numpy().astype(np.float16)
        return [
            index for row, index in enumerate(rows) if self.slots[index].take(chosen[row], top_ids[row], top_logs[row])
        ]


def feature_rows(decoder: Decoder) -> np.ndarray:
    """The features of the last step as bits, int16 `[slots, layers, width]`, or empty if none are kept."""
    return decoder.features.view(torch.int16).numpy()


def next_number(folder: Path) -> int:
    """The first conversation that no shard of the folder can have begun."""
    last = [int(read_shard(path).numbers.max()) for path in shard_paths(folder)]
    return max(last, default=-1) + 1


def write_all(records: Iterator[Record], folder: Path, per_shard: int) -> None:
    """Writes shards of `per_shard` conversations as they are finished, and says how fast it goes."""
    batch: list[Record] = []
    start = time.monotonic()
    for record in records:
        batch.append(record)
        if len(batch) < per_shard:
            continue
        write(batch, folder)
        tokens = sum(len(r.top_ids) for r in batch)
        print(f"{tokens} sampled tokens, {tokens / (time.monotonic() - start):.0f} a second", flush=True)
        batch, start = [], time.monotonic()
    if batch:
        write(batch, folder)


def write(records: list[Record], folder: Path) -> None:
    """A shard is named after a conversation in it, so that processes beside each other never take the same name."""
    write_shard(folder / f"{records[0].number:07d}.npz", records)
