"""The draft service as the coordinator calls it."""

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from coordinator.peers.ahead_blocks import BlockInbox, Preparation
from coordinator.peers.answers import GuessCounts, Proposed, call_times
from coordinator.peers.failures import known_failures
from coordinator.peers.model_peer import ModelPeer
from specpair.client.channel import proposal_caller
from specpair.errors import InvalidFieldError
from specpair.model_info import TokenizerFiles, VocabularyTranslation
from specpair.options import SequenceOptions
from specpair.rpc.messages import translation_from_proto
from specpair.security.settings import PLAIN, ChannelSecurity
from specpair.tracing import trace_metadata
from specpair.v1 import draft_service_pb2
from specpair.v1.draft_service_pb2_grpc import DraftServiceStub
from specpair.v1.proposal_pb2 import Proposal

PIECE_BYTES = 1024 * 1024
"""Of a tokenizer, in one message."""


class DraftPeer(ModelPeer):
    """The draft service."""

    def __init__(self, address: str, security: ChannelSecurity = PLAIN, inbox: BlockInbox | None = None):
        """Prepared proposals go to the `inbox`, by default one of its own."""
        super().__init__(address, security)
        self.inbox = BlockInbox() if inbox is None else inbox
        self._proposals = proposal_caller(self.channel, self.inbox.receive)
        self._stub = DraftServiceStub(self.channel)
        self._target_files: TokenizerFiles | None = None
        self._target_vocabulary = ""

    @property
    def translates(self) -> bool:
        """Whether its sequences are opened in the ids of another vocabulary than its own."""
        return bool(self._target_vocabulary)

    def share_vocabulary(self) -> None:
        """Notes that the draft has the target's vocabulary."""
        self._target_files, self._target_vocabulary = None, ""

    async def translate_for(self, files: TokenizerFiles, within: float) -> VocabularyTranslation:
        """Hands over the tokenizer of a target with another vocabulary; from now on sequences are opened in its ids.

        Raises VocabularyMismatchError if the draft cannot translate, NotSupportedError if it never does.
        """
        with known_failures():
            response = await self._stub.TakeTargetTokenizer(tokenizer_pieces(files), timeout=within)
        self._target_files, self._target_vocabulary = files, response.translation.target_vocabulary
        return translation_from_proto(response.translation)

    async def open(
        self, sequence_id: str, token_ids: Sequence[int], prompt_length: int, options: SequenceOptions, within: float
    ) -> str:
        options = replace(options, target_vocabulary=self._target_vocabulary)
        try:
            return await super().open(sequence_id, token_ids, prompt_length, options, within)
        except InvalidFieldError as error:
            files = self._target_files
            if files is None or error.metadata.get("field") != "target_vocabulary":
                raise
        # It made room for the vocabularies of other targets.
        await self.translate_for(files, within)
        return await super().open(sequence_id, token_ids, prompt_length, options, within)

    async def propose(
        self,
        sequence_id: str,
        step: int,
        base_length: int,
        appended: Sequence[int],
        count: int,
        within: float,
        min_confidence: float = 0.0,
        preparation: Preparation | None = None,
        has_proposal: bool = False,
        tree_tokens: int = 0,
        *,
        is_plain: bool = False,
    ) -> Proposed:
        """Proposes up to `count` tokens after the `base_length` tokens that the draft holds and the `appended` ones.

        The draft stops once its tokens together have a probability below `min_confidence`. With a `preparation` it then
        works ahead. A caller that has the proposal already gets none, nor is there one in a round that `is_plain`.
        """
        request = _request(
            *(sequence_id, step, base_length, appended, count, min_confidence, preparation),
            has_proposal=has_proposal,
            tree_tokens=tree_tokens,
            is_plain=is_plain,
        )
        start = time.perf_counter()
        response = await self._proposals.call(request, within)
        times = call_times(start, response)
        names = GuessCounts._fields if response.pass_count else ()
        guesses = GuessCounts(*(getattr(response, name) for name in names)) if names else None
        return Proposed(proposal=response.proposal, times=times, was_prepared=response.was_prepared, guesses=guesses)

    def tell(
        self,
        sequence_id: str,
        step: int,
        base_length: int,
        appended: Sequence[int],
        count: int,
        min_confidence: float,
        preparation: Preparation | None,
        *,
        is_plain: bool = False,
    ) -> None:
        """The same where the proposal is here already: the draft learns what became of the step before, works ahead,
        and does not answer. Raises ShuttingDownError, and InvalidFieldError if it is too much for a message."""
        order = (sequence_id, step, base_length, appended, count, min_confidence, preparation)
        self._proposals.tell(_request(*order, has_proposal=True, is_plain=is_plain))

    async def grow_beams(self, request: draft_service_pb2.GrowBeamsRequest, within: float) -> Proposed:
        """Continuations of beams: the tokens and their parents, in the tree of the request and what was grown."""
        start = time.perf_counter()
        with known_failures():
            response = await self._stub.GrowBeams(request, timeout=within, metadata=trace_metadata())
        grown = Proposal(token_ids=response.grown.token_ids, parent_indices=response.grown.parent_indices)
        return Proposed(proposal=grown, times=call_times(start, response))

    async def close(self) -> None:
        await self._proposals.close()
        await super().close()


async def tokenizer_pieces(files: TokenizerFiles) -> AsyncIterator[draft_service_pb2.TakeTargetTokenizerRequest]:
    """A tokenizer in messages."""
    names = {"bos_token": files.bos_token, "eos_token": files.eos_token}
    for start in range(0, len(files.tokenizer_json), PIECE_BYTES):
        chunk = files.tokenizer_json[start : start + PIECE_BYTES]
        yield draft_service_pb2.TakeTargetTokenizerRequest(tokenizer_json_chunk=chunk, **(names if start == 0 else {}))


def _request(
    sequence_id: str,
    step: int,
    base_length: int,
    appended: Sequence[int],
    count: int,
    min_confidence: float,
    preparation: Preparation | None,
    *,
    has_proposal: bool,
    tree_tokens: int = 0,
    is_plain: bool = False,
) -> draft_service_pb2.ProposeTokensRequest:
    return draft_service_pb2.ProposeTokensRequest(
        sequence_id=sequence_id,
        step=step,
        base_length=base_length,
        appended_token_ids=appended,
        num_speculative_tokens=count,
        min_confidence=min_confidence,
        work_ahead=None if preparation is None else _work_ahead(preparation),
        has_proposal=has_proposal,
        max_tree_tokens=tree_tokens,
        is_plain=is_plain,
    )


def _work_ahead(preparation: Preparation) -> draft_service_pb2.WorkAhead:
    return draft_service_pb2.WorkAhead(
        max_outcomes=preparation.max_outcomes,
        num_speculative_tokens=preparation.count,
        min_confidence=preparation.min_confidence,
        max_length=preparation.max_length,
        withholds_distributions=preparation.withholds,
    )
