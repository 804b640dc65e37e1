"""Text that a structured output forces comes with the verdict: no model is asked for it, and nothing else changes."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from specpair.grammars import grammar
from specpair.options import Drafter
from specpair.rpc.messages import drafter_to_proto
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import structured_output_pb2 as so
from tests.service.drafting import OF_A_DRAFT
from tests.service.test_structured import PROMPT, RULES, draw, expected, folders, forgetting, p_value
from tests.services import RunningPair, engine_config, running_pair
from tests.worded_models import TEXTS

__all__ = ["folders"]

REGEX = "(d[ac]d){3}"
"""Two thirds of each text are forced."""
LONG = so.StructuredOutput(regex="([ab]cdcdab){6}")


@pytest.fixture(scope="module")
async def pair(folders: tuple[Path, Path]) -> AsyncIterator[RunningPair]:
    async with running_pair(*map(engine_config, folders)) as pair:
        yield pair
        await pair.check_clean()


@pytest.fixture(scope="module")
async def judged(folders: tuple[Path, Path]) -> AsyncIterator[RunningPair]:
    """The pair without forced text: it is proposed and judged as any other."""
    async with running_pair(*map(engine_config, folders), no_forced_text=True) as pair:
        yield pair
        await pair.check_clean()


async def tokens(pair: RunningPair, **fields: Any) -> list[pb.GeneratedToken]:
    """The tokens of an output of LONG, with where they came from."""
    asked: dict[str, Any] = {"token_ids": pb.TokenIds(ids=PROMPT), "max_tokens": 60, "structured_output": LONG}
    names = pb.GenerateTokensRequest.DESCRIPTOR.fields_by_name
    sampling = {name: fields.pop(name) for name in list(fields) if name not in names}
    responses = pair.coordinator.GenerateTokens(pb.GenerateTokensRequest(**asked, sampling=sampling, **fields))
    return [token async for response in responses for token in response.tokens]


@pytest.mark.few_cases("3-block")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("count", [0, 3])
async def test_outputs_are_distributed_as_the_masked_target_s(
    pair: RunningPair, folders: tuple[Path, Path], rule: str, count: int
) -> None:
    counts = await draw(pair, 200, REGEX, rule=RULES[rule], num_speculative_tokens=count)
    assert p_value(counts, expected(folders[0], REGEX)) > 1e-3


async def test_a_token_that_is_not_the_only_one_is_seen(
    pair: RunningPair, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: the first of two tokens that may come is taken for forced."""

    def first_of_two(bits: bytes | None) -> int | None:
        allowed = [] if bits is None else [i for i in range(len(TEXTS)) if bits[i // 8] >> i % 8 & 1]
        return allowed[0] if 1 <= len(allowed) <= 2 else None

    monkeypatch.setattr(grammar, "only_token", first_of_two)
    counts = await draw(pair, 200, REGEX, rule=RULES["token"])
    assert p_value(counts, expected(folders[0], REGEX)) < 1e-5


@pytest.mark.parametrize("options", [{"temperature": 0.0, "seed": 4}, {"rule": RULES["coupled"], "seed": 4}])
@pytest.mark.parametrize("drafter", [one for one in OF_A_DRAFT if one not in (Drafter.UNIGRAM, Drafter.BIGRAM)])
async def test_no_output_changes_and_rounds_are_saved(
    pair: RunningPair, judged: RunningPair, drafter: Drafter, options: dict[str, Any]
) -> None:
    fields = {"drafter": drafter_to_proto(drafter), **options}
    for count, tree in ((0, 0), (3, 0), (3, 6)):
        asked = {"num_speculative_tokens": count, "num_tree_tokens": tree, **fields}
        one, other = [await one.generate(PROMPT, 60, structured_output=LONG, **asked) for one in (pair, judged)]
        assert one.token_ids == other.token_ids
        speculation, origins = one.summary.speculation, Counter(token.origin for token in await tokens(pair, **asked))
        assert speculation.forced_token_count == origins[pb.TOKEN_ORIGIN_FORCED] > 12
        assert speculation.round_count < other.summary.speculation.round_count
        assert not other.summary.speculation.forced_token_count
        assert speculation.accepted_token_count - origins[pb.TOKEN_ORIGIN_ACCEPTED] in range(3)  # those behind the end


async def test_a_text_that_is_forced_whole_takes_one_pass_and_no_draft(pair: RunningPair) -> None:
    asked = so.StructuredOutput(regex="abcdabcd")
    for max_tokens, reason in ((20, pb.FINISH_REASON_STOP), (2, pb.FINISH_REASON_LENGTH)):
        found = await pair.generate(PROMPT, max_tokens, structured_output=asked, num_speculative_tokens=3)
        assert found.summary.finish_reason == reason
        assert not found.summary.speculation.round_count
        assert found.summary.speculation.draft_token_count == 0
        assert found.summary.speculation.forced_token_count == len(found.token_ids) - 1
        assert len(found.token_ids) <= max_tokens


async def test_an_output_may_stop_within_forced_text(pair: RunningPair) -> None:
    asked = so.StructuredOutput(regex="abcdabcd")
    found = await pair.generate(PROMPT, 20, structured_output=asked, stop_strings=["da"])
    assert found.text == "abc"
    assert found.summary.finish_reason == pb.FINISH_REASON_STOP


async def test_where_each_token_needs_a_logprob_none_is_taken_without_its_row(pair: RunningPair) -> None:
    found = await tokens(pair, temperature=0.0, logprobs=1)
    assert all(token.HasField("logprobs") for token in found)
    assert all(token.origin != pb.TOKEN_ORIGIN_FORCED for token in found)
    assert [token.id for token in found] == [token.id for token in await tokens(pair, temperature=0.0)]


async def test_forced_tokens_are_counted_beside_the_others(pair: RunningPair) -> None:
    read = pair.front_end.serving.pair.metrics.registry.get_sample_value
    before = {name: read(name) or 0.0 for name in ("specpair_forced_tokens_total", "specpair_generation_tokens_total")}
    found = await pair.generate(PROMPT, 60, structured_output=LONG, temperature=0.0)
    counted = [(read(name) or 0.0) - value for name, value in before.items()]
    assert counted == [found.summary.speculation.forced_token_count, len(found.token_ids)]


async def test_a_target_that_forgets_loses_no_forced_token(pair: RunningPair) -> None:
    fields = {"num_speculative_tokens": 2, "structured_output": LONG, "rule": RULES["coupled"], "seed": 3}
    whole = await pair.generate(PROMPT, 60, **fields)
    with forgetting(pair.target.host, 2) as forgotten:
        assert (await pair.generate(PROMPT, 60, **fields)).token_ids == whole.token_ids
    assert len(forgotten) > 1
