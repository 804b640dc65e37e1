"""Draft and target without models or network, for faults that real services do not produce on demand."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from coordinator.peers.ahead_blocks import BlockInbox, BlockKey, Preparation, is_bare
from coordinator.peers.answers import CallTimes, Proposed, Scores, Verdict
from coordinator.peers.draft_peer import DraftPeer
from coordinator.peers.own_order import NO_ORDER, OwnOrder
from coordinator.peers.target_peer import TargetPeer
from specpair.errors import ConflictingBodyError, NotFiniteError, PeerUnavailableError, SpecpairError, StaleStepError
from specpair.model_info import ModelInfo
from specpair.v1.draft_service_pb2 import AheadBlock
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
        self.conditions: list[BlockKey] = []
        """Of every call on condition."""
        self.bare_count = 0
        """Those of them without distributions."""
        self.loses_conditions = False
        """Whether it gets none of them."""
        self.met_count = 0
        self.promises: list[OwnOrder | None] = []
        """What each call said of the one after it."""
        self.gone_on_count = 0
        """Steps to which it went on by itself."""
        self.falls_back: Callable[[int], bool] = lambda step: False
        """Whether it goes on after a step without a proposal, where it may and has none."""
        self.allowed_steps: list[int] = []
        """Steps after which it might."""
        self.allowed_length = 0
        """The longest that the sequence could become with the last of them."""
        self.runs: list[int] = []
        """Tokens that each call asked for without a proposal."""
        self.unaware_count = 0
        """Calls that were begun before they came, and whose callers did not know it."""
        self.most_in_time = 64
        """Tokens after which the time of a run is over."""
        self.runs_fail_from = 1 << 62
        """The step from which a run meets logits that are not finite."""
        self.failed_run_count = 0
        self._waiting: list[tuple[str, BlockKey, Proposal]] = []
        self._begun: dict[tuple[str, int], asyncio.Task[None]] = {}
        """Steps that were begun by a call on condition."""
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
        order: OwnOrder = NO_ORDER,
        appended: Sequence[int] = (),
        max_forced: int = 0,
        *,
        following_order: OwnOrder | None = None,
        was_begun: bool = False,
        may_go_on_plain: bool = False,
    ) -> Verdict:
        index = self.faults.begin()
        held = self.locate(sequence_id, step, base_length)
        assert not appended, "only forced tokens are appended, and this target names none"
        if (begun := self._begun.get((sequence_id, step))) is not None:
            self.unaware_count += not was_begun
            if not (await asyncio.wait([begun], timeout=within))[0]:
                raise PeerUnavailableError(f"the peer did not answer within {within:g} s", timeout=within)
        elif step != held.last_step:
            await held.work(min(self.delay, within))
        if self.delay > within:
            raise PeerUnavailableError(f"the peer did not answer within {within:g} s", timeout=within)
        answer = self._verdict(held, step, base_length, proposal, order.run_length)
        if begun is not None:
            answer = replace(answer, begun_before=VERIFY_TIMES.compute)
        self._decide(sequence_id, held)
        self.promises.append(following_order)
        self.runs.append(order.run_length)
        if may_go_on_plain:
            self.allowed_steps.append(step)
            self.allowed_length = base_length + len(proposal.token_ids if proposal else ()) + 1
            answer = self._go_on_plain(sequence_id, held, step, answer)
        if following_order is not None and held.last_step == step:
            self._go_on(sequence_id, held, step + answer.pass_count, following_order.run_length)
        self.faults.end(index)
        return answer

    def _go_on(self, sequence_id: str, held: Held, step: int, run_length: int = 1) -> None:
        """Begins with the next step, without a proposal: a call of it with one then conflicts."""
        if (sequence_id, step) not in self._begun:
            self.gone_on_count += 1
            self._begun[sequence_id, step] = asyncio.create_task(self._judge_plainly(held, step, run_length))

    def _go_on_plain(self, sequence_id: str, held: Held, step: int, answer: Verdict) -> Verdict:
        """The answer, once the next step has begun without a proposal, if no call of it was met and it is to."""
        if held.last_step == step and self.falls_back(step) and (sequence_id, step + 1) not in self._begun:
            self._go_on(sequence_id, held, step + 1)
            held.answer = answer = replace(answer, has_gone_on_plain=True)
        return answer

    async def _judge_plainly(self, held: Held, step: int, run_length: int) -> None:
        length = len(held.tokens)
        await held.work(self.delay)
        with suppress(SpecpairError, AssertionError):  # a sequence at the model's end has no room
            self._verdict(held, step, length, None, run_length)

    def verify_early(self, sequence_id: str, key: BlockKey, proposal: Proposal, include_probabilities: bool) -> None:
        self.conditions.append(key)
        self.bare_count += is_bare(proposal)
        held = self.held.get(sequence_id)
        if self.loses_conditions or held is None:
            return
        if held.last_step == key.step - 1 and not held.is_busy:
            self._begin_if_met(sequence_id, held, key, proposal)
        elif held.last_step < key.step - 1:
            self._waiting.append((sequence_id, key, proposal))

    def _decide(self, sequence_id: str, held: Held) -> None:
        """Begins with the call that the newest verdict meets, before that is given out."""
        waiting, self._waiting = self._waiting, []
        for name, key, proposal in waiting:
            if name != sequence_id or key.step - 1 > held.last_step:
                self._waiting.append((name, key, proposal))
            elif key.step - 1 == held.last_step:
                self._begin_if_met(name, held, key, proposal)

    def _begin_if_met(self, sequence_id: str, held: Held, key: BlockKey, proposal: Proposal) -> None:
        answer = held.answer
        assert isinstance(answer, Verdict)
        place = (sequence_id, key.step)
        if place in self._begun or (answer.accepted_count, answer.next_token_id) != key[2:]:
            return
        self.met_count += 1
        self._begun[place] = asyncio.create_task(self._judge_early(held, key, proposal))

    async def _judge_early(self, held: Held, key: BlockKey, proposal: Proposal) -> None:
        await held.work(self.delay)
        if is_bare(proposal):
            return  # judged with the ordinary call
        with suppress(SpecpairError):
            self._verdict(held, key.step, key.base_length + key.accepted_count + 1, proposal)

    def _verdict(
        self, held: Held, step: int, base_length: int, proposal: Proposal | None, run_length: int = 1
    ) -> Verdict:
        assert proposal is None or not is_bare(proposal), "nothing is judged without its distributions"
        assert run_length == 1 or (proposal is None and run_length <= self.model.longest_run)
        drafted = [] if proposal is None else list(proposal.token_ids)
        body = (base_length, drafted, run_length)
        if step == held.last_step:
            if held.last_body != body:
                raise ConflictingBodyError("another body")
        else:
            if run_length > 1 and step >= self.runs_fail_from:
                self._begun.clear()
                self.failed_run_count += 1
                raise NotFiniteError
            if step <= held.used_step:
                raise StaleStepError("past", last_step=held.used_step)
            held.answer = self._judge(held, base_length, drafted, min(run_length, self.most_in_time))
            held.last_step, held.last_body, held.used_step = step, body, step + held.answer.pass_count - 1
        assert isinstance(held.answer, Verdict)
        return held.answer

    def _judge(self, held: Held, base_length: int, drafted: list[int], run_length: int) -> Verdict:
        tokens = held.tokens[:base_length]
        while (index := len(tokens) - base_length) < len(drafted) and drafted[index] == next_token(tokens, held.seed):
            tokens.append(drafted[index])
        for _ in range(run_length):
            tokens.append(next_token(tokens, held.seed))
        assert len(tokens) <= self.model.max_model_len
        held.tokens = tokens
        return Verdict(
            path=tuple(range(index)),
            next_token_id=tokens[-run_length],
            run_ids=tuple(tokens[len(tokens) - run_length + 1 :]),
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
        self.inbox = BlockInbox()
        self.counts: list[int] = []
        """Tokens asked for, call by call."""
        self.extra_count = 0
        """Tokens proposed beyond what was asked."""
        self.knows_nothing = False
        """Whether it answers without a token."""
        self.preparations: list[Preparation | None] = []
        """What it was asked to prepare, call by call."""
        self.has_proposal: list[bool] = []
        """Whether the caller had the proposal already, call by call."""
        self.push_delay = 0.0
        """From its answer to its prepared proposals."""
        self.prepares: Callable[[int, int], bool] = lambda step, accepted_count: True
        """Whether it prepares the right proposal for a step after this many accepted tokens."""
        self.changes_block: Callable[[AheadBlock], AheadBlock] = lambda block: block
        """What it sends instead of a block."""
        self.is_mute = False
        """Whether its prepared proposals are lost."""
        self.is_deaf = False
        """Whether what it is told without being asked is lost."""
        self.told_steps: list[int] = []
        self._pushes: set[asyncio.Task[None]] = set()

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
        index = self.faults.begin()
        held = self.locate(sequence_id, step, base_length)
        await held.work(self.delay)
        self.counts.append(count)
        self.preparations.append(preparation)
        self.has_proposal.append(has_proposal)
        tokens = [*held.tokens[:base_length], *appended]
        held.tokens = list(tokens)
        held.last_step = step
        drafted = [] if is_plain else self._continue(tokens, held.seed, count)
        if preparation is not None:
            self._prepare(sequence_id, step, tokens, drafted, preparation, held.seed)
        self.faults.end(index)
        return Proposed(proposal=Proposal(token_ids=[] if has_proposal else drafted), times=DRAFT_TIMES)

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
        self.told_steps.append(step)
        if self.is_deaf:
            return
        body = (sequence_id, step, base_length, appended, count, 5.0, min_confidence, preparation, True)
        task = asyncio.create_task(self._hear(self.propose(*body, is_plain=is_plain)))
        self._pushes.add(task)
        task.add_done_callback(self._pushes.discard)

    @staticmethod
    async def _hear(call: Coroutine[Any, Any, Proposed]) -> None:
        with suppress(SpecpairError):
            await call

    def _continue(self, tokens: list[int], seed: int, count: int) -> list[int]:
        text = list(tokens)
        for _ in range(0 if self.knows_nothing else count + self.extra_count):
            text.append((next_token(text, seed) + (len(text) % 5 == 0)) % VOCAB_SIZE)
        return text[len(tokens) :]

    def _prepare(
        self, name: str, step: int, tokens: list[int], drafted: list[int], asked: Preparation, seed: int
    ) -> None:
        """Pushes blocks for every number of accepted tokens: the right one, if it is to, and a wrong one."""
        blocks = []
        for accepted_count in range(len(drafted) + 1):
            text = [*tokens, *drafted[:accepted_count]]
            right = next_token(text, seed)
            for token in [right] * self.prepares(step + 1, accepted_count) + [(right + 1) % VOCAB_SIZE]:
                count = min(asked.count, asked.max_length - len(text) - 1)
                block = AheadBlock(
                    sequence_id=name,
                    step=step + 1,
                    base_length=len(tokens),
                    accepted_count=accepted_count,
                    next_token_id=token,
                    proposal=Proposal(token_ids=self._continue([*text, token], seed, count)),
                    compute_time_us=10,
                )
                if asked.withholds:
                    block.proposal.distributions.withheld.SetInParent()
                blocks += [block] if count > 0 else []
        task = asyncio.create_task(self._push(blocks[: asked.max_outcomes]))
        self._pushes.add(task)
        task.add_done_callback(self._pushes.discard)

    async def _push(self, blocks: list[AheadBlock]) -> None:
        await asyncio.sleep(self.push_delay)
        for block in blocks:
            if not self.is_mute:
                self.inbox.receive(self.changes_block(block))
