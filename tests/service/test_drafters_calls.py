"""Any order of calls against drafters without a model, and the chain, finds what plain counting and copying says.

The machine is that of the model services: open, propose, roll back, fork, close, repeat and err over real gRPC.
"""

from collections import Counter
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from draft_service.config import DraftConfig
from specpair.options import Drafter
from specpair.rpc.messages import drafter_to_proto
from tests.service.test_model_based import (
    MAX_LENGTH,
    VOCABULARY,
    DraftMachine,
    World,
    make_oracle,
    run_machine,
    small_config,
)
from tests.services import RunningModel, running_draft


class PredictingWorld(World):
    """A draft service without a model."""

    open_fields: ClassVar[dict[str, Any]] = {"vocab_size": VOCABULARY}

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        super().__init__()

    def start(self, folder: Path) -> AbstractAsyncContextManager[RunningModel]:
        return running_draft(DraftConfig(drafter=self.drafter, max_model_len=MAX_LENGTH))

    def continue_greedily(self, tokens: list[int], count: int) -> list[int]:
        plain = plain_ngrams if self.drafter is Drafter.NGRAM else plain_copy
        return plain(tokens, count)


class ChainWorld(World):
    """A draft service with a model, asked for the chain."""

    open_fields: ClassVar[dict[str, Any]] = {"drafter": drafter_to_proto(Drafter.NGRAM_MODEL)}

    def __init__(self, cache: str) -> None:
        self.cache = cache
        super().__init__()

    def start(self, folder: Path) -> AbstractAsyncContextManager[RunningModel]:
        self.next_token = make_oracle(folder)
        return running_draft(small_config(folder, self.cache))

    def continue_greedily(self, tokens: list[int], count: int) -> list[int]:
        counted = plain_ngrams(tokens, count, min_context=2)
        if counted:
            return counted
        known = list(tokens)
        for _ in range(count):
            known.append(self.next_token(tuple(known)))
        return known[len(tokens) :]


def plain_ngrams(tokens: list[int], count: int, min_context: int = 1) -> list[int]:
    """Each the most frequent token behind the longest context that is known; of several the last."""
    drafted: list[int] = []
    while len(drafted) < count:
        followers = longest_known(tokens, [*tokens, *drafted], min_context)
        if not followers:
            break
        counts = Counter(followers)
        drafted.append(max(counts, key=lambda token: (counts[token], last_index(followers, token))))
    return drafted


def longest_known(tokens: list[int], text: list[int], min_context: int) -> list[int]:
    for length in range(3, min_context - 1, -1):
        context = text[-length:]
        found = [tokens[end] for end in range(length, len(tokens)) if tokens[end - length : end] == context]
        if found and len(context) == length:
            return found
    return []


def last_index(items: list[int], item: int) -> int:
    return len(items) - 1 - items[::-1].index(item)


def plain_copy(tokens: list[int], count: int) -> list[int]:
    """What followed the longest suffix of at most 32 tokens that came before; of several the last."""
    for length in range(min(32, len(tokens) - 1), 0, -1):
        ends = [end for end in range(length, len(tokens)) if tokens[end - length : end] == tokens[-length:]]
        if ends:
            text = list(tokens)
            for i in range(count):
                text.append(text[ends[-1] + i])
            return text[len(tokens) :]
    return []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("drafter", [Drafter.NGRAM, Drafter.PROMPT_LOOKUP])
def test_any_order_of_calls_without_a_model(drafter: Drafter) -> None:
    run_machine(DraftMachine, PredictingWorld(drafter))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("cache", ["contiguous", "paged"])
def test_any_order_of_calls_to_the_chain(cache: str) -> None:
    run_machine(DraftMachine, ChainWorld(cache))
