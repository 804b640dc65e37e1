"""What the target reports of its own distribution, whatever the options did to what was drawn."""

from pathlib import Path
from typing import Any

import grpc
import pytest
import torch

from specpair.v1 import logprobs_pb2, proposal_pb2, sampling_pb2, target_service_pb2
from specpair.v1 import sequence_service_pb2 as pb
from tests.services import RunningModel, engine_config, running_target
from tests.tiny_models import load_plain, make_model

VOCABULARY = 40
PROMPT = [5, 2, 7, 2, 11, 3]
RULES = {
    "token": sampling_pb2.ACCEPTANCE_RULE_TOKEN,
    "block": sampling_pb2.ACCEPTANCE_RULE_BLOCK,
    "coupled": sampling_pb2.ACCEPTANCE_RULE_COUPLED,
}
OPTIONS = {"temperature": 0.7, "top_k": 8, "presence_penalty": 1.0, "logit_bias": {4: 2.0}, "seed": 5}


@torch.inference_mode()
def expected_rows(model: Any, tokens: list[int]) -> torch.Tensor:
    """Logprobs [len(tokens), V] behind each prefix."""
    return model(input_ids=torch.tensor([tokens])).logits[0].float().log_softmax(-1)


def assert_entry(entry: logprobs_pb2.TokenLogprobs, row: torch.Tensor, token: int, top: int) -> None:
    assert entry.logprob == pytest.approx(row[token].item(), abs=1e-4)
    best = row.topk(top)
    assert list(entry.top_token_ids) == best.indices.tolist()
    assert list(entry.top_logprobs) == pytest.approx(best.values.tolist(), abs=1e-4)


async def verify(target: RunningModel, step: int, length: int, proposed: list[int]) -> Any:
    request = target_service_pb2.VerifyProposalRequest(
        sequence_id="s", step=step, base_length=length, proposal=proposal_pb2.Proposal(token_ids=proposed)
    )
    return await target.hot.VerifyProposal(request)


@pytest.mark.parametrize("rule", RULES)
async def test_each_committed_token_has_its_logprob(tmp_path: Path, rule: str) -> None:
    """Accepted, corrected and bonus tokens alike: proposals are greedy, so some are accepted and some are not."""
    folder = make_model(tmp_path, seed=1, vocab_size=VOCABULARY, initializer_range=0.4)
    model = load_plain(folder)
    kinds = set()
    async with running_target(engine_config(folder)) as target:
        await target.sequences.OpenSequence(
            pb.OpenSequenceRequest(sequence_id="s", token_ids=PROMPT, sampling=OPTIONS, rule=RULES[rule], logprobs=3)
        )
        tokens = list(PROMPT)
        for step in range(12):
            proposed: list[int] = []
            for _ in range(step % 4):
                proposed.append(int(expected_rows(model, [*tokens, *proposed])[-1].argmax()))
            answer = await verify(target, step, len(tokens), proposed)
            committed = [*proposed[: answer.accepted_count], answer.next_token_id]
            rows = expected_rows(model, [*tokens, *committed])[len(tokens) - 1 :]
            assert len(answer.logprobs) == len(committed)
            for entry, row, token in zip(answer.logprobs, rows, committed, strict=False):
                assert_entry(entry, row, token, 3)
            tokens += committed
            kinds |= {("accepted", answer.accepted_count > 0), ("all", answer.accepted_count == len(proposed))}
        assert len(kinds) == 4
        await target.sequences.CloseSequence(pb.CloseSequenceRequest(sequence_id="s"))
        await target.check_clean()


async def test_none_are_reported_unless_asked_for(tmp_path: Path) -> None:
    async with running_target(engine_config(make_model(tmp_path))) as target:
        await target.sequences.OpenSequence(
            pb.OpenSequenceRequest(sequence_id="s", token_ids=PROMPT, sampling={"seed": 1})
        )
        assert not (await verify(target, 0, len(PROMPT), [])).logprobs


@pytest.mark.parametrize("length", [1, 2, 5, 40])
async def test_a_text_is_scored_in_pieces(tmp_path: Path, length: int) -> None:
    """A budget of 16 tokens a pass makes three pieces of 40 tokens."""
    folder = make_model(tmp_path, seed=1, vocab_size=VOCABULARY)
    tokens = torch.randint(VOCABULARY, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    rows = expected_rows(load_plain(folder), tokens)
    async with running_target(engine_config(folder, max_num_batched_tokens=16)) as target:
        for top in (0, 4):
            request = target_service_pb2.ScoreTokensRequest(token_ids=tokens, logprobs=top)
            answer = await target.hot.ScoreTokens(request)
            assert len(answer.logprobs) == length - 1
            for entry, row, token in zip(answer.logprobs, rows, tokens[1:], strict=False):
                assert_entry(entry, row, token, top)
        await target.check_clean()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"token_ids": []}, "token_ids"),
        ({"token_ids": [VOCABULARY]}, "token_ids"),
        ({"token_ids": [1] * 200}, "token_ids"),
        ({"logprobs": 21}, "logprobs"),
    ],
)
async def test_what_cannot_be_scored_is_refused(tmp_path: Path, changes: dict[str, Any], field: str) -> None:
    async with running_target(engine_config(make_model(tmp_path, vocab_size=VOCABULARY))) as target:
        request = target_service_pb2.ScoreTokensRequest(**{"token_ids": [1, 2], **changes})
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await target.hot.ScoreTokens(request)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert field in (caught.value.details() or "")
        await target.check_clean()
