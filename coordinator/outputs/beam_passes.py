"""The passes of a beam search: candidates from the draft, their scores from the target, and the steps that these allow.

Each pass takes at least one step of the plain search. It takes more for as long as all beams that the plain search
would continue are among the candidates, so the result is that of the plain search, whatever the draft says.
"""

import time
from collections.abc import Sequence

from coordinator.outputs.acceptance import Acceptance
from coordinator.pair import Pair
from coordinator.peers import BeamDraftSession, BeamTargetSession, TreeRows
from coordinator.requests.request import GenerationRequest
from specpair.errors import ForwardFailedError, InvalidFieldError, NotSupportedError
from specpair.speculation.beams.beam_options import MAX_TREE_NODES
from specpair.speculation.beams.beam_search import BeamSearch, Continuation
from specpair.speculation.beams.beam_tree import BeamGroup, grouped
from specpair.tracing import span
from specpair.wire.beams import extend

WIDENING = 2
"""Beams that the draft keeps for each of the search."""


class BeamPasses:
    """Runs a search to its end, with the sequences of one request."""

    def __init__(
        self, request: GenerationRequest, pair: Pair, target: BeamTargetSession, draft: BeamDraftSession | None
    ):
        assert request.beams is not None
        self.search = BeamSearch(request.beams)
        self.acceptance = Acceptance()
        """A step of the search counts as a token of a chain: a pass proposes as many as the candidates are deep."""
        self.pass_count = 0
        """Calls to the target."""
        self.step_count = 0
        """Tokens of the longest beam."""
        self.cached_prompt_token_count = 0
        """Tokens of the prompt that the target had in its cache."""
        self._request = request
        self._options = request.beams
        self._prompt = list(request.prompt_ids)
        self._target = target
        self._draft = draft
        self._pair = pair
        self._vocab_size = pair.target.info.vocab_size
        self._room = pair.target.info.max_model_len - len(self._prompt)
        most = min(pair.config.max_num_speculative_tokens, pair.target.info.max_num_speculative_tokens)
        wanted = 0 if draft is None else request.num_speculative_tokens
        self._fixed = None if wanted is None else min(wanted, most)
        """Tokens by which the draft continues the beams, if the request says it."""
        self._adaptive = pair.beam_lengths.search(self._options.num_beams, request.drafts, most)

    @property
    def asks_early(self) -> bool:
        """Whether the draft may read the prompt while the target does."""
        return self._adaptive.opens_early if self._fixed is None else self._fixed > 0

    async def run(self, sequence_id: str) -> None:
        """Raises what the target refuses, and PeerUnavailableError if there is none for too long."""
        while not self.search.is_over:
            with span("beam pass", sequence=sequence_id, step=self.pass_count) as traced:
                groups = grouped(self.search.running, self._room)
                taken = await self._step_of(groups) if len(groups) > 1 else await self._steps(groups[0])
                traced.set(steps=taken, groups=len(groups))

    async def _step_of(self, groups: Sequence[BeamGroup]) -> int:
        """One step from several calls, without candidates: the branches of the beams are too long for one tree."""
        rows: dict[tuple[int, ...], Sequence[Continuation]] = {}
        for group in groups:
            scored = await self._score(group, group.asked)
            rows |= dict(zip((beam.tokens for beam in group.beams), scored.rows, strict=True))
        self.search.step([rows[beam.tokens] for beam in self.search.running])
        self._note(0, 1)
        return 1

    async def _steps(self, group: BeamGroup) -> int:
        """As many steps as one call allows."""
        began_at = time.perf_counter()
        depth = await self._grow(group)
        try:
            scored = await self._score(group, group.asked)
        except (InvalidFieldError, NotSupportedError, ForwardFailedError):
            if not depth:
                raise
            group, depth = BeamGroup(group.beams), 0  # perhaps the candidates are too many for it
            scored = await self._score(group, group.asked)
        rows = dict(zip(group.asked, scored.rows, strict=True))
        count = 0
        while not self.search.is_over:
            nodes = [group.node(beam.tokens) for beam in self.search.running]
            known = [rows[node] for node in nodes if node is not None and node in rows]
            if len(known) < len(nodes):
                break
            self.search.step(known)
            count += 1
        if self._fixed is None and self.step_count:
            self._adaptive.add(depth, count, time.perf_counter() - began_at)
        self._note(depth, count)
        return count

    async def _score(self, group: BeamGroup, asked: Sequence[int]) -> TreeRows:
        step, self.pass_count = self.pass_count, self.pass_count + 1
        history = [*self._prompt, *group.prefix]
        scored = await self._target.score_tree(step, history, group.tree, asked, self._options.top_count)
        if step:
            self.acceptance.verify_time += scored.times.compute
            self.acceptance.network_time += scored.times.outside
        else:
            self.cached_prompt_token_count = self._request.cached_prompt_tokens(scored.cached_token_count)
            self._pair.metrics.requests.add_cached_prompt(self.cached_prompt_token_count)
        return scored

    def _length_after(self, group: BeamGroup) -> int:
        """Tokens by which the beams may be continued: no more than the output and the tree have room for."""
        left = self._options.max_tokens - self.search.length - 1
        free = min(MAX_TREE_NODES, self._room - len(group.prefix)) - len(group.tree)
        room = max(min(left, free // (WIDENING * self._options.num_beams)), 0)
        return self._adaptive.next(room) if self._fixed is None else min(self._fixed, room)

    async def _grow(self, group: BeamGroup) -> int:
        """Adds the draft's candidates to the group; for how many steps there are some. The first pass goes without: the
        draft still reads the prompt."""
        draft = self._draft
        length = self._length_after(group) if draft is not None and self.pass_count else 0
        if draft is None or not length:
            return 0
        history, width = [*self._prompt, *group.prefix], WIDENING * self._options.num_beams
        proposed = await draft.grow(self.pass_count, history, group, length, width)
        if proposed is None:
            self.acceptance.fallback_count += 1
            return 0
        self.acceptance.draft_time += proposed.times.compute
        self.acceptance.network_time += proposed.times.outside
        try:
            if len(proposed.token_ids) > length * width:
                raise InvalidFieldError("tree.token_ids", f"has {len(proposed.token_ids)} tokens", limit=length * width)
            extend(group.tree, proposed.token_ids, proposed.parents, self._vocab_size)
        except InvalidFieldError as error:  # what came before the mistake may stay: any candidate is as good
            draft.leave_alone(error)
        return min(group.depth, length)

    def _note(self, depth: int, taken: int) -> None:
        """Counts a pass that had candidates for `depth` steps and took `taken` steps."""
        self.step_count += taken
        self._pair.metrics.beams.add_pass(taken)
        if self.step_count == taken:
            return  # the one that reads the prompt
        self.acceptance.add_steps(depth, min(taken - 1, depth))
