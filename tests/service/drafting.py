"""Pairs whose draft has everything that a drafter needs, and the calls of their tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from draft_service.host import DraftHost
from draft_service.table_file import FORMAT
from specpair.options import ON_THE_TARGET, Drafter, SamplingOptions
from specpair.rpc.messages import drafter_to_proto
from specpair.rpc.status import peer_errors
from specpair.speculation.tables import count_corpus
from specpair.v1 import draft_service_pb2
from specpair.v1 import sequence_service_pb2 as pb
from tests.service import distributions as distribution
from tests.services import Generated, RunningModel, RunningPair
from tests.tiny_models import load_plain

PROMPT = [1, 2, 0, 3, 1, 2, 0, 1, 2]
"""It repeats itself, so that there is something to count and to copy."""
PROMPTS = [[7], [1, 2, 3, 4] * 5, [9, 8, 7, 9, 8], list(range(40)), [5] * 12]
RULES = distribution.RULES
ENCODINGS = distribution.ENCODINGS
SAMPLED = SamplingOptions()
WITHOUT_MODEL = (Drafter.NGRAM, Drafter.PROMPT_LOOKUP, Drafter.UNIFORM)
"""Those that need nothing at all."""
OF_A_DRAFT = tuple(drafter for drafter in Drafter if drafter not in ON_THE_TARGET)
"""Those of a draft service."""
every_drafter = pytest.mark.parametrize("drafter", OF_A_DRAFT)
every_rule = pytest.mark.parametrize("rule", RULES)


def write_table(path: Path, vocab_size: int) -> str:
    """Counts of a random text."""
    corpus = np.random.default_rng(0).integers(vocab_size, size=10 * vocab_size)
    metadata = {"format": FORMAT, "vocab_size": str(vocab_size)}
    save_file(count_corpus(corpus, vocab_size)._asdict(), path, metadata=metadata)
    return str(path)


@dataclass(frozen=True)
class Served:
    pair: RunningPair
    model: Any
    """The target as transformers runs it."""


async def generate(
    pair: RunningPair, drafter: Drafter | None, count: int, prompt: list[int], **fields: Any
) -> Generated:
    """What comes out, by K = 3 unless `fields` say otherwise."""
    values = {"num_speculative_tokens": 3, "ignore_eos": True, **fields}
    return await pair.generate(prompt, count, drafter=drafter_to_proto(drafter), **values)


@contextmanager
def refused(error: type[Exception], match: str) -> Iterator[pytest.ExceptionInfo[Any]]:
    """The call is refused with this error."""
    with pytest.raises(error, match=match) as caught, peer_errors():
        yield caught


async def open_sequence(draft: RunningModel, name: str, tokens: list[int], **fields: Any) -> None:
    values = {"sampling": {"seed": 1, "temperature": 0.0}, "vocab_size": 10, **fields}
    await draft.sequences.OpenSequence(pb.OpenSequenceRequest(sequence_id=name, token_ids=tokens, **values))


async def close(draft: RunningModel, *names: str) -> None:
    for name in names:
        await draft.sequences.CloseSequence(pb.CloseSequenceRequest(sequence_id=name))


async def propose(draft: RunningModel, name: str, step: int, base: int, count: int, **fields: Any) -> Any:
    return await draft.hot.ProposeTokens(
        draft_service_pb2.ProposeTokensRequest(
            sequence_id=name, step=step, base_length=base, num_speculative_tokens=count, **fields
        )
    )


def load_plain_draft(draft: RunningModel) -> Any:
    assert isinstance(draft.host, DraftHost) and draft.host.model is not None
    return load_plain(Path(draft.host.model.config.model))
