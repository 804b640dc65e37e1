"""Structured outputs with what else a request and its pair may have: each works exactly, or is refused by name."""

import json
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from specpair.options import Drafter, Merge
from specpair.rpc.messages import drafter_to_proto
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from specpair.v1 import structured_output_pb2 as so
from tests.service.test_structured import PROMPT, RULES, draw, expected, folders, p_value
from tests.services import RunningPair, engine_config, running_pair
from tests.tiny_encoder_decoders import make_variation
from tests.tiny_heads import make_head
from tests.tiny_target_heads import make_lookahead, make_medusa
from tests.worded_models import TEXTS, make_worded_model

__all__ = ["folders"]

LONG = so.StructuredOutput(regex="([abcd]{1,3}c){9}")
HEADS = {
    Drafter.EAGLE: lambda folder: make_head(folder, vocab_size=len(TEXTS)),
    Drafter.MEDUSA: lambda folder: make_medusa(folder, outputs=len(TEXTS)),
    Drafter.PASS: make_lookahead,
}


@pytest.fixture(scope="module", params=HEADS)
async def headed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    """A target with a head, its folder, and the drafter."""
    folder = tmp_path_factory.mktemp("headed")
    target = make_worded_model(folder / "target", seed=7, num_hidden_layers=3, initializer_range=0.35)
    head = HEADS[request.param](folder / "head")
    async with running_pair(engine_config(target, head=str(head))) as pair:
        yield pair, target, drafter_to_proto(request.param)
        await pair.check_clean()


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("rule", ["token", "block"])
async def test_heads_of_the_target(headed: Any, rule: str) -> None:
    pair, target, drafter = headed
    counts = await draw(pair, 150, rule=RULES[rule], drafter=drafter)
    assert p_value(counts, expected(target)) > 1e-3


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"rule": RULES["coupled"], "seed": 4}])
async def test_heads_change_no_output(headed: Any, options: dict[str, Any]) -> None:
    pair, _, drafter = headed
    fields = {"structured_output": LONG, "drafter": drafter, **options}
    plain = await pair.generate(PROMPT, 60, num_speculative_tokens=0, **fields)
    for count in (1, 3):
        made = await pair.generate(PROMPT, 60, num_speculative_tokens=count, **fields)
        assert made.token_ids == plain.token_ids
        assert made.summary.speculation.accepted_token_count > 0


async def test_the_first_token_of_look_ahead_is_always_accepted(headed: Any) -> None:
    """It is drawn from the target's own row, under the same mask."""
    pair, _, drafter = headed
    if drafter != drafter_to_proto(Drafter.PASS):
        pytest.skip("other heads guess their first token")
    made = await pair.generate(
        PROMPT, 60, structured_output=LONG, drafter=drafter, num_speculative_tokens=1, seed=2, rule=RULES["token"]
    )
    speculation = made.summary.speculation
    assert speculation.accepted_token_count == speculation.draft_token_count > 5


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("is_masked", [True, False])
async def test_merged_drafts(folders: tuple[Path, Path], tmp_path: Path, is_masked: bool) -> None:
    target, draft = folders
    other = make_worded_model(tmp_path / "other", seed=9, num_hidden_layers=2, initializer_range=0.35)
    drafts = {"one": engine_config(draft), "two": engine_config(other)}
    options: dict[str, Any] = {"merge": Merge.TREE, "merge_wait": 60.0, "unmasked_drafts": not is_masked}
    async with running_pair(engine_config(target), drafts=drafts, **options) as pair:
        for rule in ("token", "coupled"):
            counts = await draw(pair, 150, rule=RULES[rule], drafts=["one", "two"])
            assert p_value(counts, expected(target)) > 1e-3
        fields: dict[str, Any] = {"structured_output": LONG, "temperature": 0.0}
        plain = await pair.generate(PROMPT, 60, num_speculative_tokens=0, **fields)
        merged = await pair.generate(PROMPT, 60, num_speculative_tokens=4, drafts=["one", "two"], **fields)
        assert merged.token_ids == plain.token_ids
        await pair.check_clean()


@pytest.mark.parametrize("rule", ["block", "coupled"])
async def test_a_draft_that_has_none_of_the_tokens_that_fit_goes_on(
    folders: tuple[Path, Path], tmp_path: Path, rule: str
) -> None:
    """Its mask would leave nothing of its row: it proposes without one, and is rejected there."""
    target, draft = folders
    reduced = Path(shutil.copytree(draft, tmp_path / "reduced"))
    config = json.loads((reduced / "config.json").read_text())
    (reduced / "config.json").write_text(json.dumps({**config, "output_token_ids": [TEXTS.index("a"), 5]}))
    async with AsyncExitStack() as stack:
        pair: RunningPair = await stack.enter_async_context(running_pair(*map(engine_config, (target, reduced))))
        regex = "[ad]{2}[cd]a{2}"
        counts = await draw(pair, 100, regex, rule=RULES[rule])
        assert p_value(counts, expected(target, regex)) > 1e-3
        options: dict[str, Any] = {"temperature": 0.0, "structured_output": so.StructuredOutput(regex="([cd]a){6}")}
        plain = await pair.generate(PROMPT, 20, num_speculative_tokens=0, **options)
        for tree in (0, 4):
            made = await pair.generate(PROMPT, 20, num_speculative_tokens=2, num_tree_tokens=tree, **options)
            assert made.token_ids == plain.token_ids
            assert made.summary.speculation.draft_token_count > 8
        await pair.check_clean()


FREE: list[dict[str, Any]] = [{"temperature": 0.0}, {"rule": RULES["coupled"], "seed": 4}]
"""Options under which no output depends on proposals."""


def fits(token_ids: Sequence[int]) -> bool:
    """Whether the text of the tokens is one that was asked for."""
    return re.fullmatch(LONG.regex, "".join(TEXTS[token] for token in token_ids if token)) is not None


@pytest.mark.parametrize("kind", ["t5", "bart"])
async def test_targets_with_an_encoder(kind: str, tmp_path: Path) -> None:
    target = make_worded_model(tmp_path / "target", kind, seed=1)
    draft = make_variation(tmp_path / "draft", target, spread=0.03)
    shutil.copy(target / "tokenizer.json", draft)
    shutil.copy(target / "tokenizer_config.json", draft)
    async with running_pair(*map(engine_config, (target, draft)), draft_timeout=60.0) as pair:
        for options in FREE:
            (plain, _), (made, summary) = [await encoded(pair, count, **options) for count in (0, 3)]
            assert made == plain and fits(made)
            assert summary.speculation.accepted_token_count > 0
        await pair.check_clean()


async def encoded(pair: RunningPair, count: int, **options: Any) -> tuple[list[int], pb.GenerationSummary]:
    """Token ids and summary of an output of which the encoder reads the prompt."""
    rule = options.pop("rule", sampling_pb2.ACCEPTANCE_RULE_UNSPECIFIED)
    request = pb.GenerateTokensRequest(
        encoder_token_ids=pb.TokenIds(ids=PROMPT),
        max_tokens=60,
        num_speculative_tokens=count,
        structured_output=LONG,
        sampling=sampling_pb2.SamplingOptions(**options),
        rule=rule,
    )
    responses = [response async for response in pair.coordinator.GenerateTokens(request)]
    return [token.id for response in responses for token in response.tokens], responses[-1].summary


@pytest.mark.few_cases()
@pytest.mark.timeout(300)
async def test_a_target_on_two_ranks(folders: tuple[Path, Path]) -> None:
    target, draft = folders
    sharded = engine_config(target, tensor_parallel_size=2, threads=1)
    async with (
        running_pair(sharded, engine_config(draft), draft_timeout=60.0) as pair,
        running_pair(*map(engine_config, folders)) as whole,
    ):
        for options in FREE:
            expected_ids = (await whole.generate(PROMPT, 60, structured_output=LONG, **options)).token_ids
            made = await pair.generate(PROMPT, 60, structured_output=LONG, num_speculative_tokens=3, **options)
            assert made.token_ids == expected_ids and fits(made.token_ids)
            assert made.summary.speculation.draft_token_count > 0
        await pair.check_clean()


async def test_beam_search_refuses_it_by_name(folders: tuple[Path, Path]) -> None:
    async with running_pair(*map(engine_config, folders)) as pair:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await pair.generate(PROMPT, 10, temperature=0.0, num_beams=2, structured_output=LONG)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "structured_output: cannot be combined with num_beams" in str(caught.value.details())
        request = pb.GenerateTokensRequest(token_ids=pb.TokenIds(ids=PROMPT), max_tokens=4, num_beams=2)
        assert [response async for response in pair.coordinator.GenerateTokens(request)]
