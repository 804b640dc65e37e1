"""The rounds of a request as spans of time: the work of coordinator, draft, target and network."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from command.trace.chrome_trace import Sample, Span, Track, chrome_trace
from specpair.v1 import coordinator_service_pb2 as pb

COORDINATOR, DRAFT, TARGET, NETWORK = "coordinator", "draft", "target", "network"
AHEAD = "ahead"
"""The draft's work on proposals that it prepared while the target verified the round before."""
ACCEPTANCE = "acceptance rate"
OPENING = "read prompt, open sequences"
_OUTCOMES = {
    pb.AHEAD_OUTCOME_HIT: "hit",
    pb.AHEAD_OUTCOME_LATE: "late",
    pb.AHEAD_OUTCOME_MISS: "miss",
    pb.AHEAD_OUTCOME_PLAIN: "plain",
}
_ORIGINS = {
    pb.TOKEN_ORIGIN_ACCEPTED: "accepted",
    pb.TOKEN_ORIGIN_CORRECTION: "correction",
    pb.TOKEN_ORIGIN_BONUS: "bonus",
    pb.TOKEN_ORIGIN_TARGET: "target",
    pb.TOKEN_ORIGIN_FORCED: "forced",
}


class _Call(NamedTuple):
    """A call to a service, with its place in the trace."""

    service: str
    start_us: int
    times: pb.CallTimes

    @property
    def end_us(self) -> int:
        return self.start_us + self.times.elapsed_us


class OutputSpans:
    """The spans of one output on its own tracks: outputs of a request run at the same time."""

    def __init__(self, responses: Sequence[pb.GenerateTokensResponse], name: str = ""):
        """`responses` are those of the output; `name` distinguishes its tracks from those of other outputs."""
        self._rounds = [response for response in responses if response.HasField("round")]
        self._calls = _place_calls([response.round for response in self._rounds])
        self._lanes = _ahead_lanes([response.round for response in self._rounds])
        self._summary = responses[-1].summary
        self._suffix = f" ({name})" if name else ""

    @property
    def tracks(self) -> list[Track]:
        """Every track that may be used, in the order of the document."""
        return [
            self._track(COORDINATOR, "rounds"),
            *(self._track(DRAFT, part) for part in ("queue", "compute")),
            *(self._ahead_track(lane) for lane in range(max(self._lanes, default=0) + 1)),
            *(self._track(TARGET, part) for part in ("queue", "compute")),
            *(self._track(NETWORK, service) for service in (DRAFT, TARGET)),
        ]

    def spans(self) -> Iterator[Span]:
        track = self.tracks[0]
        last = self._calls[-1][-1].end_us if self._calls else 0
        total = max(self._summary.total_time_us, last)
        args = _summary_args(self._summary)
        yield Span(track=track, name="request", start_us=0, duration_us=total, args=args)
        if self._calls:
            yield Span(track=track, name=OPENING, start_us=0, duration_us=self._calls[0][0].start_us)
        for response, calls, lane in zip(self._rounds, self._calls, self._lanes, strict=True):
            step, start = response.round.step, calls[0].start_us
            name = f"round {step}" if step else "first token"
            args = _round_args(response)
            yield Span(track=track, name=name, start_us=start, duration_us=calls[-1].end_us - start, args=args)
            for call in calls:
                yield from self._call_spans(call, _call_args(call.service, response.round))
            if _is_ahead(response.round):
                yield self._ahead_span(response.round, lane)

    def samples(self) -> Iterator[Sample]:
        """The acceptance rate so far, after each round that had proposals."""
        proposed = accepted = 0
        for response, calls in zip(self._rounds, self._calls, strict=True):
            proposed += len(response.round.proposed)
            accepted += _accepted_count(response.round)
            if response.round.proposed:
                name = ACCEPTANCE + self._suffix
                yield Sample(process=COORDINATOR, name=name, at_us=calls[-1].end_us, value=accepted / proposed)

    def _ahead_span(self, round_: pb.RoundReport, lane: int) -> Span:
        """The draft's work on a proposal, beside what the target did."""
        return Span(
            track=self._ahead_track(lane),
            name="propose",
            start_us=round_.draft.start_us,
            duration_us=round_.draft.elapsed_us,
            args=_call_args(DRAFT, round_),
        )

    def _ahead_track(self, lane: int) -> Track:
        return self._track(DRAFT, f"{AHEAD} {lane + 1}" if lane else AHEAD)

    def _track(self, process: str, thread: str) -> Track:
        return Track(process, thread + self._suffix)

    def _call_spans(self, call: _Call, args: dict[str, Any]) -> Iterator[Span]:
        """The parts of a call. Network time is split in half, since the share of each direction is not known."""
        service, times = call.service, call.times
        compute = min(times.compute_us, times.elapsed_us)
        queue = min(times.queue_us, times.elapsed_us - compute)
        way = times.elapsed_us - compute - queue
        parts = [
            (self._track(NETWORK, service), f"to {service}", way // 2),
            (self._track(service, "queue"), "queue", queue),
            (self._track(service, "compute"), "propose" if service == DRAFT else "verify", compute),
            (self._track(NETWORK, service), f"from {service}", way - way // 2),
        ]
        start = call.start_us
        for track, name, duration in parts:
            if duration:
                yield Span(track=track, name=name, start_us=start, duration_us=duration, args=args)
            start += duration


def trace_document(responses: Sequence[pb.GenerateTokensResponse]) -> dict[str, Any]:
    """The Chrome trace of a finished request that asked for its rounds."""
    indices = sorted({response.choice_index for response in responses})
    outputs = [
        OutputSpans(
            [response for response in responses if response.choice_index == index],
            f"output {index + 1}" if len(indices) > 1 else "",
        )
        for index in indices
    ]
    tracks = [track for output in outputs for track in output.tracks]
    return chrome_trace(
        sorted(tracks, key=lambda track: (COORDINATOR, DRAFT, TARGET, NETWORK).index(track.process)),
        [span for output in outputs for span in output.spans()],
        [sample for output in outputs for sample in output.samples()],
        {"text": "".join(response.text for response in responses if response.choice_index == 0)},
    )


def _place_calls(rounds: Sequence[pb.RoundReport]) -> list[list[_Call]]:
    """The calls of each round, one after the other, without those whose answers came ahead.

    Start and length are rounded separately, so a call may end a microsecond after the start of the next one.
    """
    placed: list[list[_Call]] = []
    end = 0
    for round_ in rounds:
        calls: list[_Call] = []
        for service, times in ((DRAFT, round_.draft), (TARGET, round_.verify)):
            if service == TARGET or (round_.HasField("draft") and not _is_ahead(round_)):
                calls.append(_Call(service, max(times.start_us, end), times))
                end = calls[-1].end_us
        placed.append(calls)
    return placed


def _ahead_lanes(rounds: Sequence[pb.RoundReport]) -> list[int]:
    """Which track of those for work ahead each round has. The proposals of two rounds may be in the making at once, and
    spans on one track must not cross."""
    lanes: list[int] = []
    ends: list[int] = []
    for round_ in rounds:
        lane, times = 0, round_.draft
        if _is_ahead(round_):
            lane = next((lane for lane, end in enumerate(ends) if end <= times.start_us), len(ends))
            ends[lane : lane + 1] = [times.start_us + times.elapsed_us]
        lanes.append(lane)
    return lanes


def _is_ahead(round_: pb.RoundReport) -> bool:
    """Whether the proposal was prepared while the round before was verified; the round waited for no call then."""
    is_prepared = round_.ahead in (pb.AHEAD_OUTCOME_HIT, pb.AHEAD_OUTCOME_LATE)
    return is_prepared and round_.HasField("draft")


def _accepted_count(round_: pb.RoundReport) -> int:
    return sum(token.accepted for token in round_.proposed)


def _round_args(response: pb.GenerateTokensResponse) -> dict[str, Any]:
    round_ = response.round
    return {
        "proposed": len(round_.proposed),
        "accepted": _accepted_count(round_),
        "committed": len(response.tokens),
        "text": response.text,
        "tokens": [{"text": token.text, "origin": _ORIGINS.get(token.origin, "")} for token in response.tokens],
        "proposal": [_proposed_args(token) for token in round_.proposed],
    }


def _proposed_args(token: pb.ProposedToken) -> dict[str, Any]:
    args: dict[str, Any] = {"text": token.text, "accepted": token.accepted}
    if token.HasField("parent_index"):
        args["parent"] = token.parent_index
    if token.draft_names:
        args["drafts"] = list(token.draft_names)
    for name in ("target_probability", "draft_probability"):
        if token.HasField(name):
            args[name] = getattr(token, name)
    return args


def _call_args(service: str, round_: pb.RoundReport) -> dict[str, Any]:
    args: dict[str, Any] = {"round": round_.step, "proposed": len(round_.proposed)}
    if service == DRAFT and round_.ahead in _OUTCOMES:
        args["ahead"] = _OUTCOMES[round_.ahead]
    if service == TARGET:
        args |= {"accepted": _accepted_count(round_), "batch_token_count": round_.batch_token_count}
    return args


def _summary_args(summary: pb.GenerationSummary) -> dict[str, Any]:
    speculation = summary.speculation
    return {
        "prompt_tokens": summary.prompt_token_count,
        "cached_prompt_tokens": summary.cached_prompt_token_count,
        "completion_tokens": summary.completion_token_count,
        "seed": str(summary.seed),  # too large for the exact integers of JavaScript
        "proposed": speculation.draft_token_count,
        "accepted": speculation.accepted_token_count,
        "acceptance_rate": speculation.acceptance_rate,
        "tokens_per_round": speculation.tokens_per_round,
    }
