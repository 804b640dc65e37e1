"""How a draft proposes for a target with another tokenizer."""

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from draft_service.translation.tokenization import Cut, cut, longest
from draft_service.translation.transcript import Transcript, boundary_after
from draft_service.translation.vocabulary import Vocabulary
from specpair.model_info import TokenizerFiles, VocabularyMethod, VocabularyTranslation
from specpair.options import SamplingOptions

LEAST_OVERLAP, LEAST_GREEDY_OVERLAP = 0.5, 0.97
"""Share of a text's tokens that must be common, so that the draft draws from common tokens (TLI); below it writes text
(SLEM). Greedy outputs lose less by the latter. See docs/decisions/vocabularies.md."""
TAIL = 8
"""Tokens of the target before a drafted text that are cut again with it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Translation:
    """Between the draft's tokens and those of one target. May be used by several threads."""

    facts: VocabularyTranslation
    reader: Vocabulary
    """The target's."""
    writer: Vocabulary
    """The draft's."""
    shared: dict[int, int]
    """The draft's token for each of the target's tokens that it has, special ones included."""
    _columns: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.facts.target_vocabulary

    @cached_property
    def unwritable(self) -> list[int]:
        """The draft's special tokens that the target does not have."""
        common = set(self.shared.values())
        return [token for token in self.writer.specials if token not in common]

    @cached_property
    def _special_tokens(self) -> dict[int, int]:
        """The target's token for each special one of the draft."""
        return {own: token for token, own in self.shared.items() if token in self.reader.specials}

    def writes(self, options: SamplingOptions) -> bool:
        """Whether the draft writes text for a sequence with these options; otherwise it draws from common tokens."""
        method = self.facts.greedy_method if options.is_greedy else self.facts.method
        return method is VocabularyMethod.SLEM

    def transcript(self) -> Transcript:
        """An empty one."""
        specials = {token: own for token, own in self.shared.items() if token in self.reader.specials}
        return Transcript(self.reader, self.writer, specials)

    def in_target_ids(self, logits: Tensor, width: int) -> Tensor:
        """Logits `[rows, width]` of the target's ids from the draft's own `[rows, vocabulary]`; -inf where the draft
        has no such token. Their softmax is the draft's distribution over common tokens, renormalised. Device thread
        only."""
        nothing = logits.new_full((logits.shape[0], 1), -torch.inf)
        # A copy and a gather: for 128,000 tokens 0.1 ms, a third of what it takes to write into rows of -inf.
        return torch.cat([logits, nothing], 1).index_select(1, self._columns_of(width, logits))

    def own_id(self, token_id: int) -> int:
        """The draft's token for a common one."""
        return self.shared[token_id]

    def rewritten(self, transcript: Transcript, own_ids: list[int]) -> list[int]:
        """What the draft wrote after the committed tokens, in the target's tokens. Ends at a special token that the
        target does not have."""
        written: list[int] = []
        drafted = bytearray()
        for own_id in own_ids:
            piece = self.writer.pieces.get(own_id)
            if piece is None:
                written = [*self._in_target_tokens(transcript, bytes(drafted)), self._special_tokens.get(own_id, -1)]
                return written if written[-1] >= 0 else written[:-1]
            drafted += piece
        return self._in_target_tokens(transcript, bytes(drafted))

    def _in_target_tokens(self, transcript: Transcript, drafted: bytes) -> list[int]:
        before = transcript.tail(TAIL)
        together = cut(self.reader, before + drafted, begins=len(before) == len(transcript.text))
        first = boundary_after(together, len(before))
        if first is None:  # the target's tokenizer would have joined them
            together, first = longest(self.reader, drafted), 0
        return together.token_ids[first:]

    def _columns_of(self, width: int, logits: Tensor) -> Tensor:
        """The draft's id for each of the target's below `width`; the width of the logits where it has none."""
        key = (width, logits.shape[1])
        if key not in self._columns:
            pairs = torch.tensor([*self.shared.items()], dtype=torch.long).reshape(-1, 2)
            pairs = pairs[(pairs[:, 0] < width) & (pairs[:, 1] < logits.shape[1])]
            columns = torch.full((width,), logits.shape[1]).index_copy_(0, pairs[:, 0], pairs[:, 1])
            self._columns.clear()
            self._columns[key] = columns.to(logits.device)
        return self._columns[key]


def name_of(files: TokenizerFiles) -> str:
    """The name of a target's tokenizer: a digest."""
    digest = hashlib.sha256(files.tokenizer_json)
    digest.update(f"\0{files.bos_token}\0{files.eos_token}".encode())
    return digest.hexdigest()


def make_translation(
    writer: Vocabulary, files: TokenizerFiles, method: VocabularyMethod | None, text: str
) -> Translation:
    """For a target with this tokenizer; the method is chosen by the overlap on a text unless it is given. Takes seconds
    for large vocabularies. Raises VocabularyMismatchError where the target's tokens give no text."""
    reader = Vocabulary(files)
    shared = shared_tokens(reader, writer)
    overlap = overlap_of(cut(writer, text.encode()), set(shared.values()))
    facts = VocabularyTranslation(
        target_vocabulary=name_of(files),
        method=method or best_method(overlap, LEAST_OVERLAP),
        greedy_method=method or best_method(overlap, LEAST_GREEDY_OVERLAP),
        overlap=overlap,
        shared_token_count=len(shared),
    )
    return Translation(facts=facts, reader=reader, writer=writer, shared=shared)


def best_method(overlap: float, least: float) -> VocabularyMethod:
    return VocabularyMethod.TLI if overlap >= least else VocabularyMethod.SLEM


def shared_tokens(reader: Vocabulary, writer: Vocabulary) -> dict[int, int]:
    """The writer's token for each of the reader's with the same bytes; special ones by role, then by name."""
    shared = {token: writer.by_bytes[piece] for piece, token in reader.by_bytes.items() if piece in writer.by_bytes}
    names = {name: token for token, name in writer.specials.items()}
    shared |= {token: names[name] for token, name in reader.specials.items() if name in names}
    for token, own in ((reader.bos, writer.bos), (reader.eos, writer.eos)):
        if token is not None and own is not None:
            shared[token] = own
    return shared


def overlap_of(text: Cut, shared: set[int]) -> float:
    """Share of a text's tokens that are common."""
    return sum(token_id in shared for token_id in text.token_ids) / max(1, len(text.token_ids))
