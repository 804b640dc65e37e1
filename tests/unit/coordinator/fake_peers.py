"""Draft and target without models or network, for faults that real services do not produce on demand."""

from collections.abc import Sequence

from coordinator.peers.answers import CallTimes, Proposed, Scores, Verdict
from coordinator.peers.draft_peer import DraftPeer
from coordinator.peers.target_peer import TargetPeer
from specpair.errors import ConflictingBodyError, PeerUnavailableError
from specpair.model_info import ModelInfo
from specpair.v1.logprobs_pb2 import TokenLogprobs
from specpair.v1.proposal_pb2 import Proposal
from tests.unit.coordinator.fake_language import VOCAB_SIZE, next_token, token_logprobs
from tests.unit.coordinator.fake_sequences import FakeSequences, Faults, Held, travel

DRAFT_TIMES = CallTimes(started_at=0.0, elapsed=12e-6, queue=0.0, compute=10e-6)
VERIFY_TIMES = CallTimes(started_at=0.0, elapsed=11e-6, queue=0.0, compute=10e-6)


def resized(entries: list[TokenLogprobs], extra: int) -> list[TokenLogprobs]:
    """So many entries more, or fewer."""
    return [*entries, *entries][: len(entries) + extra]


class FakeTarget(FakeSequences, TargetPeer):
    """Accepts what it would have said itself."""

    def __init__(self, info: ModelInfo, address: str = "fake:1") -> None:
        super().__init__(info, address)
        self.score_faults = Faults()
        self.score_delay = 0.0
        self.extra_logprobs = 0
        """Entries sent beyond what was committed or scored; fewer where it is negative."""

    async def score(self, token_ids: Sequence[int], top_count: int, within: float) -> Scores:
        await travel(self.score_delay, within)
        index = self.score_faults.begin()
        entries = [token_logprobs(i, token_id, top_count) for i, token_id in enumerate(token_ids)]
        self.score_faults.end(index)
        return Scores(instance_id=self.model.instance_id, logprobs=resized(entries[1:], self.extra_logprobs))

    async def verify(
        self,
        sequence_id: str,
        step: int,
        base_length: int,
        proposal: Proposal | None,
        within: float,
        include_probabilities: bool = False,
    ) -> Verdict:
        index = self.faults.begin()
        held = self.locate(sequence_id, step, base_length)
        await held.work(min(self.delay, within))
        if self.delay > within:
            raise PeerUnavailableError(f"the peer did not answer within {within:g} s", timeout=within)
        drafted = [] if proposal is None else list(proposal.token_ids)
        if step == held.last_step:
            if held.last_body != (base_length, drafted):
                raise ConflictingBodyError("another body")
        else:
            held.answer = self._judge(held, base_length, drafted)
            held.last_step, held.last_body = step, (base_length, drafted)
        self.faults.end(index)
        assert isinstance(held.answer, Verdict)
        return held.answer

    def _judge(self, held: Held, base_length: int, drafted: list[int]) -> Verdict:
        tokens = held.tokens[:base_length]
        while (index := len(tokens) - base_length) < len(drafted) and drafted[index] == next_token(tokens, held.seed):
            tokens.append(drafted[index])
        tokens.append(next_token(tokens, held.seed))
        assert len(tokens) <= self.model.max_model_len
        held.tokens = tokens
        return Verdict(
            path=tuple(range(index)),
            next_token_id=tokens[-1],
            times=VERIFY_TIMES,
            logprobs=self._logprobs(held, base_length),
        )

    def _logprobs(self, held: Held, base_length: int) -> list[TokenLogprobs]:
        if held.options.logprobs is None:
            return []
        committed = range(base_length, len(held.tokens))
        entries = [token_logprobs(i, held.tokens[i], held.options.logprobs) for i in committed]
        return resized(entries, self.extra_logprobs)


class FakeDraft(FakeSequences, DraftPeer):
    """Says what the target says, but is wrong at every fifth position."""

    def __init__(self, info: ModelInfo, address: str = "fake:1") -> None:
        super().__init__(info, address)
        self.counts: list[int] = []
        """Tokens asked for, call by call."""
        self.extra_count = 0
        """Tokens proposed beyond what was asked."""
        self.knows_nothing = False
        """Whether it answers without a token."""

    async def propose(
        self,
        sequence_id: str,
        step: int,
        base_length: int,
        appended: Sequence[int],
        count: int,
        within: float,
        min_confidence: float = 0.0,
    ) -> Proposed:
        index = self.faults.begin()
        held = self.locate(sequence_id, step, base_length)
        await held.work(self.delay)
        self.counts.append(count)
        tokens = [*held.tokens[:base_length], *appended]
        held.tokens = list(tokens)
        held.last_step = step
        proposal = Proposal()
        for _ in range(0 if self.knows_nothing else count + self.extra_count):
            tokens.append((next_token(tokens, held.seed) + (len(tokens) % 5 == 0)) % VOCAB_SIZE)
            proposal.token_ids.append(tokens[-1])
        self.faults.end(index)
        return Proposed(proposal=proposal, times=DRAFT_TIMES)
