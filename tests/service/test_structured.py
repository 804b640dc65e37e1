"""Structured outputs through all three services: valid, distributed as the masked target's own, and never lost."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import torch
from scipy.stats import chisquare

import target_service.verifier as verifier
from specpair.grammars.compiling import GrammarCompiler
from specpair.grammars.grammar import GrammarState
from specpair.options import Drafter, StructuredOutput, StructureKind
from specpair.rpc.messages import drafter_to_proto
from specpair.speculation.draft_rows import DraftRows
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from specpair.v1 import structured_output_pb2 as so
from tests.service.drafting import OF_A_DRAFT
from tests.services import RunningPair, engine_config, running_pair
from tests.tiny_models import load_plain, make_model, make_variation
from tests.worded_models import TEXTS, make_worded_model, worded_tokenizer

PROMPT = [1, 2, 3]
REGEX = "(ab|c){1,2}d?|bca"
ASKED = so.StructuredOutput(regex=REGEX)
RULES = {
    "token": sampling_pb2.ACCEPTANCE_RULE_TOKEN,
    "block": sampling_pb2.ACCEPTANCE_RULE_BLOCK,
    "coupled": sampling_pb2.ACCEPTANCE_RULE_COUPLED,
}
FEW = "[ad]{3}"
SAMPLES = 300
PER_REQUEST = 25


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("worded")
    shape = {"num_hidden_layers": 2, "initializer_range": 0.35}
    return make_worded_model(folder / "target", seed=7, **shape), make_worded_model(folder / "draft", seed=8, **shape)


@pytest.fixture(scope="module")
async def pair(folders: tuple[Path, Path]) -> AsyncIterator[RunningPair]:
    async with running_pair(*map(engine_config, folders)) as pair:
        yield pair
        await pair.check_clean()


@pytest.fixture(scope="module")
async def unmasked(folders: tuple[Path, Path]) -> AsyncIterator[RunningPair]:
    """The pair with a draft that knows nothing of structured outputs."""
    async with running_pair(*map(engine_config, folders), unmasked_drafts=True) as pair:
        yield pair
        await pair.check_clean()


async def draw(
    pair: RunningPair, samples: int = SAMPLES, regex: str = REGEX, **fields: Any
) -> Counter[tuple[int, ...]]:
    found: Counter[tuple[int, ...]] = Counter()
    for first in range(0, samples, PER_REQUEST):
        request = pb.GenerateTokensRequest(
            token_ids=pb.TokenIds(ids=PROMPT),
            max_tokens=12,
            n=PER_REQUEST,
            sampling={"seed": first},  # type: ignore[arg-type]
            structured_output=so.StructuredOutput(regex=regex),
            **{"num_speculative_tokens": 3, **fields},
        )
        tokens: dict[int, list[int]] = {}
        async for response in pair.coordinator.GenerateTokens(request):
            tokens.setdefault(response.choice_index, []).extend(token.id for token in response.tokens)
        found.update(tuple(ids) for ids in tokens.values())
    return found


@cache
def expected(folder: Path, regex: str = REGEX) -> dict[tuple[int, ...], float]:
    """The target's own distribution over whole outputs under the masks, from the model as transformers runs it."""
    model = load_plain(folder)
    asked = StructuredOutput(kind=StructureKind.REGEX, source=regex)
    state = GrammarState(GrammarCompiler(worded_tokenizer().to_str().encode(), len(TEXTS), [0]).compile(asked))
    found: dict[tuple[int, ...], float] = {}
    beginnings: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while beginnings:
        tokens, chance = beginnings.pop()
        if tokens and tokens[-1] == 0:
            found[tokens] = chance
            continue
        (mask,) = state.masks(tokens, [()])
        assert mask.bits is not None
        with torch.inference_mode():
            logits = model(torch.tensor([[*PROMPT, *tokens]])).logits[0, -1].double()
        allowed = [token for token in range(len(TEXTS)) if mask.bits[token // 8] >> token % 8 & 1]
        shares = logits[allowed].softmax(-1).tolist()
        beginnings += [((*tokens, token), chance * share) for token, share in zip(allowed, shares, strict=True)]
    return found


def p_value(counts: Counter[tuple[int, ...]], wanted: dict[tuple[int, ...], float]) -> float:
    """Of the chi-square test; outcomes of which fewer than 5 are expected are pooled. Impossible ones are fatal."""
    assert not set(counts) - set(wanted), "an impossible outcome came out"
    total = sum(counts.values())
    bins: list[tuple[float, float]] = []
    for tokens in sorted(wanted, key=lambda tokens: wanted[tokens]):
        seen, due = counts[tokens], wanted[tokens] * total
        if bins and bins[-1][1] < 5:
            bins[-1] = (bins[-1][0] + seen, bins[-1][1] + due)
        else:
            bins.append((seen, due))
    observed, due = np.array(bins).T
    return float(chisquare(observed, due * total / due.sum()).pvalue)


@pytest.mark.few_cases("block")
@pytest.mark.parametrize("rule", RULES)
async def test_outputs_are_distributed_as_the_masked_target_s(
    pair: RunningPair, folders: tuple[Path, Path], rule: str
) -> None:
    assert len(expected(folders[0])) > 8
    assert p_value(await draw(pair, rule=RULES[rule]), expected(folders[0])) > 1e-3


@pytest.mark.few_cases("fields1")
@pytest.mark.parametrize("fields", [{"rule": RULES["token"]}, {"rule": RULES["block"], "num_tree_tokens": 6}])
async def test_so_they_are_where_the_draft_proposes_what_does_not_fit(
    unmasked: RunningPair, folders: tuple[Path, Path], fields: dict[str, Any]
) -> None:
    assert p_value(await draw(unmasked, **fields), expected(folders[0])) > 1e-3


@pytest.mark.few_cases()
async def test_cutting_blocks_at_what_does_not_fit_is_seen(
    unmasked: RunningPair, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: the target leaves out a drafted token that does not fit, with all that follow it."""
    wanted = expected(folders[0], FEW)
    assert p_value(await draw(unmasked, regex=FEW, rule=RULES["token"]), wanted) > 1e-3
    right = verifier.judgeable

    def cut(call: Any, held: Any, own: Any) -> Any:
        call = right(call, held, own)
        length = call.base_length + len(call.appended)
        tokens = [*held.cached.tokens[: call.base_length], *call.appended][held.prompt_length : length]
        masks = held.grammar.masks(tokens, [call.proposed[:i] for i in range(len(call.proposed))])
        fits = [m.bits is None or bool(m.bits[t // 8] >> t % 8 & 1) for m, t in zip(masks, call.proposed, strict=True)]
        kept = fits.index(False) if False in fits else len(fits)
        draft = DraftRows(*(part[:kept] for part in call.draft.padded))
        return call._replace(proposed=call.proposed[:kept], draft=draft)

    monkeypatch.setattr(verifier, "judgeable", cut)
    counts = await draw(unmasked, regex=FEW, rule=RULES["token"])
    assert p_value(counts, wanted) < 1e-5


@pytest.mark.parametrize("drafter", [one for one in OF_A_DRAFT if one not in (Drafter.UNIGRAM, Drafter.BIGRAM)])
async def test_greedy_output_is_the_same_with_every_drafter(
    pair: RunningPair, unmasked: RunningPair, drafter: Drafter
) -> None:
    asked = so.StructuredOutput(regex="([abcd]{1,3}c){9}")
    options: dict[str, Any] = {"temperature": 0.0, "structured_output": asked}
    plain = await pair.generate(PROMPT, 60, num_speculative_tokens=0, **options)
    assert plain.summary.finish_reason == pb.FINISH_REASON_STOP
    for one in (pair, unmasked):
        for count, tree in ((1, 0), (4, 0), (4, 8)):
            fields = {"num_speculative_tokens": count, "num_tree_tokens": tree, "drafter": drafter_to_proto(drafter)}
            assert (await one.generate(PROMPT, 60, **fields, **options)).token_ids == plain.token_ids


async def test_coupled_output_is_the_same_for_every_k_and_with_work_ahead(pair: RunningPair) -> None:
    asked = so.StructuredOutput(regex="([abcd]{1,3}c){9}")
    options: dict[str, Any] = {"rule": RULES["coupled"], "seed": 5, "structured_output": asked}
    plain = await pair.generate(PROMPT, 60, num_speculative_tokens=0, **options)
    for count in (1, 3, 5):
        for mode in (pb.WORK_AHEAD_MODE_ON, pb.WORK_AHEAD_MODE_OFF):
            found = await pair.generate(PROMPT, 60, num_speculative_tokens=count, work_ahead=mode, **options)
            assert found.token_ids == plain.token_ids


@contextmanager
def forgetting(target: Any, every: int) -> Iterator[list[str]]:
    """Before one in `every` verifications the target forgets its sequence. Yields the names of the forgotten ones."""
    verify, calls, forgotten = target.verify, itertools.count(1), list[str]()

    async def forget(call: Any, body: object, *sequel: Any) -> Any:
        if next(calls) % every == 0:
            await target.close(call.sequence_id)
            forgotten.append(call.sequence_id)
        return await verify(call, body, *sequel)

    target.verify = forget
    try:
        yield forgotten
    finally:
        del target.verify


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"rule": RULES["coupled"], "seed": 3}])
async def test_a_target_that_forgets_loses_nothing(pair: RunningPair, options: dict[str, Any]) -> None:
    """The grammar's state is rebuilt from the tokens wherever the sequence is opened again."""
    asked = so.StructuredOutput(regex="([abcd]{1,3}c){9}")
    fields = {"num_speculative_tokens": 2, "structured_output": asked, **options}
    whole = await pair.generate(PROMPT, 60, **fields)
    with forgetting(pair.target.host, 3) as forgotten:
        assert (await pair.generate(PROMPT, 60, **fields)).token_ids == whole.token_ids
    assert len(forgotten) > 1
    received = whole.token_ids[:7]
    rest = await pair.generate(PROMPT, 60, resumed_token_ids=received, **{"seed": 1, **fields})
    assert rest.token_ids == whole.token_ids[7:]


async def test_resumed_tokens_must_fit(pair: RunningPair) -> None:
    fields = {"seed": 1, "structured_output": so.StructuredOutput(choices=so.Choices(texts=["ab", "cd"]))}
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await pair.generate(PROMPT, 20, resumed_token_ids=[TEXTS.index("d")], **fields)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "does not fit" in str(caught.value.details())


async def test_a_text_that_cannot_go_on_is_an_error_not_a_wrong_output(pair: RunningPair) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await pair.generate(PROMPT, 20, structured_output=so.StructuredOutput(regex="ab?x"))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_outputs_side_by_side_do_not_mix(pair: RunningPair) -> None:
    """In one batch: structured outputs of several kinds, and one that may be anything."""
    asked = [so.StructuredOutput(regex=regex) for regex in ("a{3,9}", "(ab){2,5}", "c+d", "[bd]{6}")]
    alone = [await pair.generate(PROMPT, 20, temperature=0.0, structured_output=one) for one in (*asked, None)]
    together = await asyncio.gather(
        *(pair.generate(PROMPT, 20, temperature=0.0, structured_output=one) for one in (*asked, None))
    )
    assert [one.token_ids for one in together] == [one.token_ids for one in alone]


async def test_a_target_without_a_tokenizer_says_so(tmp_path: Path) -> None:
    target = make_model(tmp_path / "target")
    draft = make_variation(tmp_path / "draft", target, spread=0.05)
    async with running_pair(engine_config(target), engine_config(draft)) as pair:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await pair.generate(PROMPT, 5, structured_output=ASKED)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert "structured_output" in str(caught.value.details())
