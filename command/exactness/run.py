"""A run of `specpair verify-exactness`: the server's abilities, the requests, the report. Needs scipy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from command.exactness.draws import draw_all, draw_one
from command.failures import CommandError
from command.info import has_encoder
from specpair.errors import NotSupportedError
from specpair.exactness.draws import Draw, Drawn, Prompt
from specpair.exactness.judgement import judge, rules_hardly_speculated, worked_ahead
from specpair.exactness.plan import Settings, make_plan
from specpair.exactness.report import Report
from specpair.exactness.rounding import rounding_of
from specpair.options import Rule, SamplingOptions, WorkAhead, check_range
from specpair.rpc.status import peer_errors
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.sequence_service_pb2 import GetModelInfoResponse

INFO_TIMEOUT = 10.0
USUAL_LENGTH = 3
"""Tokens proposed per round unless the user says otherwise."""
PROMPTS = ("The ", "def ")

Show = Callable[[str, int], Callable[[], None]]
"""Begins a part of the run, by name and number of requests; returns a function to call after each request."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the user asked for; None means a default that the server supports."""

    prompts: tuple[Prompt, ...] | None
    num_speculative_tokens: int | None
    rules: tuple[Rule, ...]
    draws: int
    seed: int
    work_ahead: WorkAhead | None = None
    num_tree_tokens: int | None = None


async def settings_for(stub: Any, pair: pb.GetPairInfoResponse, wishes: Wishes) -> Settings:
    """The wishes, as far as this server supports them. Raises SpecpairError or CommandError."""
    limit = _most_speculated(pair)
    length = wishes.num_speculative_tokens
    if length is not None:
        check_range("--num-speculative-tokens", length, 1, limit)
    if wishes.num_tree_tokens is not None:
        check_range("--num-tree-tokens", wishes.num_tree_tokens, 0, limit)
    return Settings(
        prompts=wishes.prompts or await _own_prompts(stub, pair.target),
        draws=wishes.draws,
        seed=wishes.seed,
        rules=wishes.rules,
        num_speculative_tokens=min(USUAL_LENGTH, limit) if length is None else length,
        work_ahead=wishes.work_ahead,
        num_tree_tokens=wishes.num_tree_tokens,
        max_num_speculative_tokens=limit,
    )


async def describe(stub: Any) -> pb.GetPairInfoResponse:
    """The pair; both draft and target must be there. Raises SpecpairError or CommandError."""
    with peer_errors():
        pair = await stub.GetPairInfo(pb.GetPairInfoRequest(), timeout=INFO_TIMEOUT)
    for name in ("target", "draft"):
        if not pair.HasField(name):
            raise CommandError(f"the server has no {name}, or cannot reach it: there is nothing to verify")
    return pair


async def verify(
    stub: Any, pair: pb.GetPairInfoResponse, settings: Settings, *, alpha: float, concurrency: int, show: Show
) -> Report:
    """Makes all requests and judges them. Raises SpecpairError, or CommandError if the server does not speculate."""
    plan = make_plan(settings)
    outputs: dict[Draw, Drawn] = {}
    for name, draws in (("checks of equality", plan.equality_draws()), ("sampled outputs", plan.sampled_draws())):
        shown = show(name, len(draws))
        outputs |= await draw_all(stub, draws, concurrency, shown, has_encoder=has_encoder(pair.target))
        _check_speculation(outputs)
    if settings.work_ahead is WorkAhead.ON and not worked_ahead(outputs):
        raise CommandError("the draft prepared no proposal that was used: there is nothing to verify")
    target, draft = (
        rounding_of(model.dtype, is_deterministic=model.deterministic) for model in (pair.target, pair.draft)
    )
    return judge(plan, outputs, alpha=alpha, rounding=target, draft_rounding=draft)


def _most_speculated(pair: pb.GetPairInfoResponse) -> int:
    """Most tokens per round that all three services accept. Raises CommandError if it is 0."""
    limit = min(
        pair.max_num_speculative_tokens,
        pair.draft.max_num_speculative_tokens,
        pair.target.max_num_speculative_tokens,
    )
    if limit < 1:
        raise CommandError("the server does not speculate (its limit is 0 proposed tokens): there is nothing to verify")
    return limit


async def _own_prompts(stub: Any, target: GetModelInfoResponse) -> tuple[Prompt, ...]:
    """Short neutral prompts; token ids if the server has no tokenizer, or for an encoder."""
    some = tuple(_some_tokens(target.vocab_size, step, 3) for step in (1, 2))
    if has_encoder(target):
        return some
    probe = Draw(
        prompt=PROMPTS[0],
        sampling=SamplingOptions(temperature=0.0),
        rule=Rule.BLOCK,
        num_speculative_tokens=0,
        max_tokens=1,
    )
    try:
        await draw_one(stub, probe)
    except NotSupportedError:
        return some
    return PROMPTS


def _some_tokens(vocab_size: int, step: int, count: int) -> tuple[int, ...]:
    return tuple((i + 1) * step * vocab_size // 7 % vocab_size for i in range(count))


def _check_speculation(outputs: dict[Draw, Drawn]) -> None:
    """Raises CommandError if the server hardly proposed: it would pass every test and prove nothing."""
    if silent := rules_hardly_speculated(outputs):
        names = ", ".join(silent)
        raise CommandError(
            f"the draft proposed nothing, or failed in most rounds, under rule {names}: there is nothing to verify"
        )
