"""What the target said, as files: conversations and its likeliest tokens at each position that it sampled."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

GIVEN, TURN, ANSWER = 0, 1, 2
"""Kinds of tokens: of the prompt, of a user turn that the target wrote, of an answer."""


@dataclass(kw_only=True)
class Record:
    """One conversation, as it was decoded."""

    number: int
    """Which conversation (`Prompts.conversation`)."""
    temperature: float
    """Of its answers."""
    token_ids: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    """For each token: GIVEN, TURN or ANSWER."""
    top_ids: list[np.ndarray] = field(default_factory=list)
    """For each sampled token, in order: the target's likeliest tokens there, uint16 `[64]`."""
    top_logs: list[np.ndarray] = field(default_factory=list)
    """Their log-probabilities at temperature 1 over the whole vocabulary, float16 `[64]`."""
    features: list[np.ndarray] = field(default_factory=list)
    """For each token but the last: what enters some of the target's layers, the bits of bf16 in int16
    `[layers, width]`; empty if they are not kept."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Many records, joined."""

    numbers: np.ndarray
    temperatures: np.ndarray
    lengths: np.ndarray
    """Tokens of each conversation."""
    token_ids: np.ndarray
    kinds: np.ndarray
    top_ids: np.ndarray
    top_logs: np.ndarray


def write_shard(path: Path, records: list[Record]) -> None:
    """Writes the file whole or not at all."""
    arrays = {
        "numbers": np.array([r.number for r in records], dtype=np.int64),
        "temperatures": np.array([r.temperature for r in records], dtype=np.float32),
        "lengths": np.array([len(r.token_ids) for r in records], dtype=np.int64),
        "token_ids": np.concatenate([np.array(r.token_ids, dtype=np.uint16) for r in records]),
        "kinds": np.concatenate([np.array(r.kinds, dtype=np.uint8) for r in records]),
        "top_ids": np.concatenate([np.stack(r.top_ids) for r in records]),
        "top_logs": np.concatenate([np.stack(r.top_logs) for r in records]),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    if records[0].features:
        rows = [row for r in records for row in (*r.features, np.zeros_like(r.features[0]))]
        np.save(features_path(path), np.stack(rows))
    unfinished = path.with_suffix(".new")
    with unfinished.open("wb") as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
    unfinished.replace(path)


def features_path(path: Path) -> Path:
    """Where the features of a shard's tokens are: an array `[tokens, layers, width]`, to be read in parts."""
    return path.with_suffix(".features.npy")


def read_shard(path: Path) -> Shard:
    with np.load(path) as arrays:
        return Shard(**{name: arrays[name] for name in arrays.files})


def shard_paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.npz"))
