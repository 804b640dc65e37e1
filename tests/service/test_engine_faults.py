"""Races, faults and tight memory inside a model process. Each of these went wrong once, or nearly."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
import transformers as hf

from draft_service.host import DraftHost
from specpair.errors import ModelRefusedError, SequenceNotFoundError
from specpair.models.load_runner import load_runner
from specpair.options import SamplingOptions, SequenceOptions
from specpair.v1 import draft_service_pb2, proposal_pb2, target_service_pb2
from specpair.v1 import sequence_service_pb2 as pb
from tests.poison import poison
from tests.services import RunningModel, draft_config, engine_config, running_draft, running_target
from tests.tiny_models import generate_greedily, load_plain, make_model

CACHES = ["contiguous", "paged"]
GREEDY = {"temperature": 0.0, "seed": 1}


async def open_sequence(model: RunningModel, name: str, tokens: list[int], **sampling: Any) -> None:
    request = pb.OpenSequenceRequest(sequence_id=name, token_ids=tokens, sampling={**GREEDY, **sampling})
    await model.sequences.OpenSequence(request)


async def close(model: RunningModel, *names: str) -> None:
    for name in names:
        await model.sequences.CloseSequence(pb.CloseSequenceRequest(sequence_id=name))


async def verify(model: RunningModel, name: str, step: int, base: int, appended: list[int] | None = None) -> int:
    """The next greedy token after the tokens that the call counts on."""
    request = target_service_pb2.VerifyProposalRequest(
        sequence_id=name, step=step, base_length=base, appended_token_ids=appended or []
    )
    return (await model.hot.VerifyProposal(request)).next_token_id


def hold_device(model: RunningModel) -> Any:
    """Keeps the device thread busy until the event that it returns is set."""
    import threading

    release = threading.Event()

    def wait() -> None:
        release.wait(20)

    model.host.engine._inbox.put(wait)
    return release


@pytest.mark.parametrize("cache", CACHES)
async def test_a_fork_that_goes_another_way_at_once(cache: str, tmp_path: Path) -> None:
    """The copy's tokens change while the device thread has not copied its cache yet."""
    folder = make_model(tmp_path, seed=1)
    plain = load_plain(folder)
    async with running_target(engine_config(folder, cache=cache)) as target:
        await open_sequence(target, "a", list(range(1, 11)))
        await verify(target, "a", 0, 10)
        release = hold_device(target)
        await target.sequences.ForkSequence(pb.ForkSequenceRequest(sequence_id="a", forked_sequence_id="b", length=10))
        other = [21, 22, 23, 24]
        # Step 1: the copy has the seed of the original, and with it the steps that are taken.
        answer = asyncio.create_task(verify(target, "b", 1, 6, other))
        await asyncio.sleep(0.05)
        release.set()
        assert await answer == generate_greedily(plain, [*range(1, 7), *other], 1)[0]
        await close(target, "a", "b")
        await open_sequence(target, "c", list(range(1, 11)))  # may find what the others left
        assert await verify(target, "c", 0, 10) == generate_greedily(plain, list(range(1, 11)), 1)[0]
        await close(target, "c")
        await target.check_clean()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("cache", CACHES)
async def test_two_that_fit_only_one_after_the_other(cache: str, tmp_path: Path) -> None:
    """Both hold half the cache and want more: the older goes on, the younger is computed again."""
    folder = make_model(tmp_path, seed=1)
    plain = load_plain(folder)
    config = engine_config(folder, cache=cache, num_blocks=6, max_model_len=24)
    prompts = {"a": [1] * 11, "b": [2] * 11}
    async with running_target(config) as target:
        for name, prompt in prompts.items():
            await open_sequence(target, name, prompt)
            await verify(target, name, 0, 11)
        release = hold_device(target)
        calls = [asyncio.create_task(verify(target, name, 1, 11, [3, 4, 5])) for name in prompts]
        await asyncio.sleep(0.05)
        release.set()
        expected = [generate_greedily(plain, [*prompt, 3, 4, 5], 1)[0] for prompt in prompts.values()]
        assert await asyncio.gather(*calls) == expected
        await close(target, *prompts)
        await target.check_clean()


async def test_a_fork_keeps_the_steps_that_its_seed_has_decided(tmp_path: Path) -> None:
    async with running_target(engine_config(make_model(tmp_path))) as target:
        await open_sequence(target, "a", [1, 2])
        await verify(target, "a", 3, 2)
        fork = pb.ForkSequenceRequest(sequence_id="a", forked_sequence_id="b")
        await target.sequences.ForkSequence(fork)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await verify(target, "b", 3, 3)
        assert caught.value.code() is grpc.StatusCode.ABORTED
        other = pb.ForkSequenceRequest(sequence_id="a", forked_sequence_id="c", sampling={"seed": 2, "temperature": 0})
        await target.sequences.ForkSequence(other)
        await verify(target, "c", 0, 3)
        await verify(target, "a", 4, 3)
        await target.sequences.ForkSequence(fork)  # an honest repetition, though the original has moved
        await close(target, "a", "b", "c")


async def test_a_drawn_token_is_not_dropped_for_what_follows_it(tmp_path: Path) -> None:
    """Rule 8: a draft whose next row is NaN sends the tokens that it has drawn."""
    poisoned = 5
    folder = make_model(tmp_path, seed=2, vocab_size=8, tie_word_embeddings=False)
    async with running_draft(engine_config(folder)) as draft:
        poison(draft.host, poisoned)
        first_tokens = {}
        for count in (1, 3):
            first_tokens[count] = []
            for seed in range(60):
                await open_sequence(draft, "s", [1, 2], temperature=3.0, seed=seed)
                request = draft_service_pb2.ProposeTokensRequest(
                    sequence_id="s", step=1, base_length=2, num_speculative_tokens=count
                )
                first_tokens[count].append((await draft.hot.ProposeTokens(request)).proposal.token_ids[0])
                await close(draft, "s")
        assert poisoned in first_tokens[1]
        assert first_tokens[3] == first_tokens[1]


@pytest.mark.parametrize("count", [17, 20_000])
async def test_huge_proposals_are_refused_before_they_are_unpacked(count: int, tmp_path: Path) -> None:
    async with running_target(engine_config(make_model(tmp_path))) as target:
        await open_sequence(target, "s", [1, 2])
        sizes = [64] + [1] * (count - 1)
        sparse = proposal_pb2.SparseDistributions(support_sizes=sizes, token_ids=bytes(4 * sum(sizes)))
        request = target_service_pb2.VerifyProposalRequest(sequence_id="s", base_length=2)
        request.proposal.token_ids.extend([1] * count)
        request.proposal.distributions.sparse.CopyFrom(sparse)
        with pytest.raises(grpc.aio.AioRpcError, match="at most 16") as caught:
            await target.hot.VerifyProposal(request)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await close(target, "s")


@pytest.mark.parametrize("cache", CACHES)
async def test_a_failed_job_or_pass_is_not_the_end(cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that cannot be had for a fork costs time; a pass that fails costs the calls in it, and no more."""
    folder = make_model(tmp_path, seed=1)
    expected = generate_greedily(load_plain(folder), [1, 2, 3], 2)
    async with running_target(engine_config(folder, cache=cache)) as target:
        await open_sequence(target, "a", [1, 2, 3])
        assert await verify(target, "a", 0, 3) == expected[0]

        def fail(*arguments: object, **keywords: object) -> None:
            raise RuntimeError("no memory")

        with monkeypatch.context() as patched:
            patched.setattr(target.host.engine.cache, "fork", fail)
            await target.sequences.ForkSequence(pb.ForkSequenceRequest(sequence_id="a", forked_sequence_id="b"))
            await target.host.engine.check_integrity()
        with monkeypatch.context() as patched:
            patched.setattr(target.host.engine._turns.runner, "forward", fail)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await verify(target, "a", 1, 4)
            assert caught.value.code() is grpc.StatusCode.INTERNAL
            assert "memory" not in str(caught.value.details())
        assert await verify(target, "a", 1, 4) == expected[1]
        assert await verify(target, "b", 1, 4) == expected[1]
        await close(target, "a", "b")
        await target.check_clean()


async def test_calls_after_the_end_do_not_wait_for_ever(tmp_path: Path) -> None:
    async with running_target(engine_config(make_model(tmp_path))) as target:
        await open_sequence(target, "a", [1, 2, 3])
        await target.host.engine.stop()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await verify(target, "a", 0, 3)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_rollback_does_not_reach_the_next_sequence_of_that_name(tmp_path: Path) -> None:
    """It waits for the prefill; meanwhile the sequence is closed and another opened under its name."""
    drafter = await DraftHost.start(draft_config(make_model(tmp_path)))

    async def open_plainly() -> None:
        await drafter.open("s", [1] * 20, 20, SequenceOptions(sampling=SamplingOptions()))

    try:
        await open_plainly()
        rollback = asyncio.create_task(drafter.rollback("s", 10))
        await asyncio.sleep(0)
        await drafter.close("s")
        await open_plainly()
        with pytest.raises(SequenceNotFoundError):
            await rollback
        assert drafter.sequences.get("s").length == 20
    finally:
        await drafter.stop()


async def test_a_repeated_step_after_a_rollback_is_stale(tmp_path: Path) -> None:
    async with running_target(engine_config(make_model(tmp_path))) as target:
        await open_sequence(target, "s", [1, 2, 3])
        await verify(target, "s", 0, 3)
        await target.sequences.RollbackSequence(pb.RollbackSequenceRequest(sequence_id="s", length=2))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await verify(target, "s", 0, 3)
        assert caught.value.code() is grpc.StatusCode.ABORTED
        await close(target, "s")


def test_positions_that_depend_on_the_batch_are_refused(tmp_path: Path) -> None:
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    config = hf.Phi3Config(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        original_max_position_embeddings=64,
        rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, **factors},
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
    )
    hf.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(ModelRefusedError, match="longrope"):
        load_runner(engine_config(tmp_path))
    load_runner(engine_config(tmp_path, max_model_len=64))


def test_a_cache_that_holds_not_even_one_sequence_is_refused(tmp_path: Path) -> None:
    make_model(tmp_path)
    with pytest.raises(ModelRefusedError, match="--num-blocks is 8, but one sequence of 128 tokens needs 32"):
        load_runner(engine_config(tmp_path, num_blocks=8))


async def test_one_of_two_equal_forks_is_kept(tmp_path: Path) -> None:
    """Both wait for the prefill; whichever comes second finds the first."""
    drafter = await DraftHost.start(draft_config(make_model(tmp_path)))
    try:
        await drafter.open("s", [1] * 20, 20, SequenceOptions(sampling=SamplingOptions()))
        lengths = await asyncio.gather(*(drafter.fork("s", "copy", 10, None) for _ in range(2)))
        assert lengths == [10, 10]
        for name in ("s", "copy"):
            await drafter.close(name)
        await drafter.engine.check_integrity()
        info = drafter.info()
        assert (info.sequence_count, info.free_block_count) == (0, info.block_count)
    finally:
        await drafter.stop()


async def test_a_rollback_behind_the_prompt_makes_the_rest_output(tmp_path: Path) -> None:
    """Penalties and min_tokens then count from there, as they do for a fork of that length."""
    drafter = await DraftHost.start(draft_config(make_model(tmp_path)))
    try:
        await drafter.open("s", [1] * 10, 10, SequenceOptions(sampling=SamplingOptions()))
        await drafter.rollback("s", 3)
        await drafter.fork("s", "copy", None, None)
        assert [drafter.sequences.get(name).prompt_length for name in ("s", "copy")] == [3, 3]
    finally:
        await drafter.stop()
