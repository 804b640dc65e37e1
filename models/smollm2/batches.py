"""Training batches: conversations of about the same length, padded on the right."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from models.smollm2.loss import Teacher
from models.smollm2.shards import ANSWER, GIVEN, read_shard, shard_paths


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Some conversations, and what the target says in their answers."""

    token_ids: Tensor
    """int64 `[rows, length]`."""
    places: Tensor
    """Flat indices into `token_ids` of the positions whose next token is an answer's."""
    teacher: Teacher


@dataclass(frozen=True, kw_only=True)
class Talk:
    """One conversation."""

    token_ids: np.ndarray
    places: np.ndarray
    """Positions before an answer's tokens."""
    top_ids: np.ndarray
    """uint16 `[answer tokens, most]`."""
    top_logs: np.ndarray
    temperature: float
    number: int


def read_talks(path: Path) -> list[Talk]:
    """The conversations of a shard."""
    shard = read_shard(path)
    talks, token, sampled = [], 0, 0
    for number, temperature, length in zip(shard.numbers, shard.temperatures, shard.lengths, strict=True):
        kinds = shard.kinds[token : token + length]
        sampled_kinds = kinds[kinds != GIVEN]
        answers = np.flatnonzero(sampled_kinds == ANSWER) + sampled
        talks.append(
            Talk(
                token_ids=shard.token_ids[token : token + length],
                places=np.flatnonzero(kinds == ANSWER) - 1,
                top_ids=shard.top_ids[answers],
                top_logs=shard.top_logs[answers],
                temperature=float(temperature),
                number=int(number),
            )
        )
        token, sampled = token + length, sampled + len(sampled_kinds)
    return talks


class Corpus:
    """All talks of a folder; `refresh` adds the shards that came since."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.known, self.talks = folder, set[Path](), list[Talk]()
        self.refresh()

    def refresh(self) -> None:
        for path in shard_paths(self.folder):
            if path not in self.known:
                self.known.add(path)
                self.talks.extend(read_talks(path))

    @property
    def answer_tokens(self) -> int:
        return sum(len(talk.places) for talk in self.talks)

    def epoch(self, generator: np.random.Generator, rows: int) -> Iterator[list[Talk]]:
        """Every talk once, in groups of `rows` whose lengths are alike."""
        order = generator.permutation(len(self.talks))
        groups = []
        for start in range(0, len(order), rows * 16):
            block = sorted(order[start : start + rows * 16], key=lambda i: len(self.talks[i].token_ids))
            groups.extend(block[i : i + rows] for i in range(0, len(block), rows))
        for index in generator.permutation(len(groups)):
            yield [self.talks[i] for i in groups[index]]


def join(talks: list[Talk], columns_of: Tensor) -> Batch:
    """A batch; `columns_of` [vocabulary] has the column of each output token and -1 for the others."""
    length = max(len(talk.token_ids) for talk in talks)
    token_ids = torch.zeros(len(talks), length, dtype=torch.long)
    for row, talk in enumerate(talks):
        token_ids[row, : len(talk.token_ids)] = torch.from_numpy(talk.token_ids.astype(np.int64))
    places = np.concatenate([talk.places + row * length for row, talk in enumerate(talks)])
    top_ids = torch.from_numpy(np.concatenate([talk.top_ids for talk in talks]).astype(np.int64))
    logs = torch.from_numpy(np.concatenate([talk.top_logs for talk in talks])).float()
    columns = columns_of[top_ids]
    cold = np.repeat([talk.temperature < 1 for talk in talks], [len(talk.places) for talk in talks])
    teacher = Teacher(
        columns=columns.clamp_min(0),
        probabilities=logs.exp() * (columns >= 0),
        cold=torch.from_numpy(cold),
    )
    return Batch(token_ids=token_ids, places=torch.from_numpy(places), teacher=teacher)


def columns_of(output_token_ids: list[int], vocabulary: int) -> Tensor:
    """The column of each output token, -1 for the others, `[vocabulary]`."""
    columns = torch.full((vocabulary,), -1)
    columns[output_token_ids] = torch.arange(len(output_token_ids))
    return columns
