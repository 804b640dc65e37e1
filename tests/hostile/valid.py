"""A proper message for every method: what mutations begin with."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from draft_service.translation.translation import name_of
from specpair.v1 import beams_pb2, proposal_pb2
from specpair.v1 import coordinator_service_pb2 as generation
from specpair.v1 import draft_service_pb2 as drafting
from specpair.v1 import sequence_service_pb2 as sequences
from specpair.v1 import target_service_pb2 as verifying
from tests.hostile.limits import MAX_PROPOSED, VOCABULARY
from tests.hostile.truth import PROMPTS
from tests.tiny_tokenizers import added, byte_level, files

TEXTS = ("def read(path):", "class Stack:", "x = [1, 2", "naïve ☕ \U0001f600", "")
LAYOUTS: list[dict[str, Any]] = [
    {},
    {"add_generation_prompt": False},
    {"chat_template_kwargs": '{"enable_thinking": false}'},
    {"messages": [{"role": "assistant", "content": "def"}], "continue_final_message": True},
    {"messages": [{"role": "assistant", "content": "a", "reasoning_content": "def"}]},
]
TOTAL_LOG2 = 8
FEW_TOKENS = 4
TOKENIZER = files(byte_level(["a", "b", "Ġ", "ab"], [["a", "b"]], [added(4)]))
"""Of a target with another vocabulary."""


def tokens(random: Random, most: int = 8) -> list[int]:
    return [random.randrange(VOCABULARY) for _ in range(random.randint(1, most))]


def sampling(random: Random) -> dict[str, Any]:
    """Options that are legal, many of them at their defaults."""
    options: dict[str, Any] = {"seed": random.getrandbits(64), "temperature": random.choice([0.0, 0.7, 1.0, 100.0])}
    for name, values in {
        "top_k": [0, 1, 40],
        "top_p": [0.1, 1.0],
        "min_p": [0.0, 0.5, 1.0],
        "repetition_penalty": [0.01, 1.1, 100.0],
        "presence_penalty": [-2.0, 2.0],
        "frequency_penalty": [-2.0, 2.0],
        "min_tokens": [0, 2],
        "stop_token_ids": [[0], [1, 2]],
        "banned_token_ids": [[3], [4, 5]],
        "logit_bias": [{7: 100.0}, {8: -100.0}],
    }.items():
        if random.random() < 0.2:
            options[name] = random.choice(values)
    return options


def sparse_row(random: Random, token: int) -> tuple[list[int], list[int]]:
    """Ids and counts of a row that the token can have come from."""
    others = [other for other in {random.randrange(VOCABULARY) for _ in range(random.randint(0, 5))} if other != token]
    ids = sorted([token, *others])
    counts = [1] * len(ids)
    counts[0] += (1 << TOTAL_LOG2) - len(ids)
    return ids, counts


def sparse(random: Random, proposed: list[int]) -> proposal_pb2.Distributions:
    rows = [sparse_row(random, token) for token in proposed]
    message = proposal_pb2.SparseDistributions(
        support_sizes=[len(ids) for ids, _ in rows],
        token_ids=numbers([token for ids, _ in rows for token in ids]),
        counts=numbers([count for _, counts in rows for count in counts]),
        total_log2=TOTAL_LOG2,
    )
    return proposal_pb2.Distributions(sparse=message)


def dense(proposed: list[int]) -> proposal_pb2.Distributions:
    """All mass on the proposed tokens, as float32."""
    rows = np.zeros((len(proposed), VOCABULARY), dtype="<f4")
    rows[np.arange(len(proposed)), proposed] = 1.0
    tensor = proposal_pb2.Tensor(type=proposal_pb2.TENSOR_TYPE_FLOAT32, shape=rows.shape, data=rows.tobytes())
    return proposal_pb2.Distributions(dense=proposal_pb2.DenseDistributions(probabilities=tensor))


def numbers(values: list[int]) -> bytes:
    return np.array(values, dtype="<u4").tobytes()


def proposal(random: Random, most: int = MAX_PROPOSED) -> proposal_pb2.Proposal:
    proposed = tokens(random, most)
    one_hot = proposal_pb2.Distributions(one_hot=proposal_pb2.OneHotDistributions())
    makers = [lambda: sparse(random, proposed)] * 4 + [lambda: dense(proposed), lambda: one_hot, lambda: None]
    return proposal_pb2.Proposal(token_ids=proposed, distributions=random.choice(makers)())


def generate_request(random: Random) -> generation.GenerateTokensRequest:
    request = generation.GenerateTokensRequest(
        sampling=sampling(random), max_tokens=FEW_TOKENS, num_speculative_tokens=random.randint(0, 4)
    )
    prompts = [
        {"text": random.choice(TEXTS)},
        {"token_ids": {"ids": tokens(random)}},
        {"chat": {"messages": [{"role": "user", "content": random.choice(TEXTS)}], **random.choice(LAYOUTS)}},
    ]
    request.MergeFrom(generation.GenerateTokensRequest(**random.choice(prompts)))
    for name, values in {
        "rule": [1, 2, 3],
        "encoding": [1, 2],
        "n": [1, 2],
        "logprobs": [0, 3],
        "prompt_logprobs": [0, 2],
        "stop_strings": [["a"], ["\n", "x"]],
        "resumed_token_ids": [[1], [2, 3]],
        "echo": [True],
        "include_rounds": [True],
        "drafter": [1, 2, 3],
        "drafts": [["draft"], ["ngram"], ["draft", "ngram"], ["nobody"]],
        "merge": [1, 2],
        "structured_output": [{"regex": "[ab]{1,4}"}, {"json_object": True}, {"choices": {"texts": ["a", "b"]}}],
    }.items():
        if random.random() < 0.2:
            request.MergeFrom(generation.GenerateTokensRequest(**{name: random.choice(values)}))
    if random.random() < 0.1:
        request.num_beams = random.randint(1, 4)
        request.ClearField("sampling")
    return request


def open_options(random: Random) -> dict[str, Any]:
    optional: dict[str, list[Any]] = {"rule": [1, 2, 3], "encoding": [1, 2], "logprobs": [0, 20]}
    optional["drafter"] = [1, 2, 3, 7]
    optional["target_vocabulary"] = [name_of(replace(TOKENIZER, bos_token="<begin>")), "0" * 64]
    chosen = {name: random.choice(values) for name, values in optional.items() if random.random() < 0.3}
    return {"sampling": sampling(random), "vocab_size": VOCABULARY, **chosen}


def condition(random: Random, step: int) -> verifying.Condition:
    """A verdict of an earlier step."""
    return verifying.Condition(
        step=random.randrange(step),
        accepted_count=random.randint(0, MAX_PROPOSED),
        next_token_id=random.randrange(VOCABULARY),
    )


def verification_stream(
    random: Random, call: dict[str, Any], verify: verifying.VerifyProposalRequest
) -> verifying.StreamVerificationsRequest:
    """With one call, often before the verdict that it depends on."""
    made = verifying.VerificationCall(**call, request=verify)
    if verify.step and random.random() < 0.3:
        made.request.condition.CopyFrom(condition(random, verify.step))
        made.is_unanswered = True
    return verifying.StreamVerificationsRequest(calls=[made])


def beams(random: Random) -> beams_pb2.BeamTree:
    """A few branches, each of which begins with another token."""
    first = random.sample(range(VOCABULARY), random.randint(1, 4))
    parents = [-1] * len(first) + list(range(len(first)))
    return beams_pb2.BeamTree(token_ids=[*first, *first], parent_indices=parents)


def score_tree(random: Random, step: dict[str, Any]) -> verifying.ScoreTreeRequest:
    tree = beams(random)
    return verifying.ScoreTreeRequest(
        **step, tree=tree, asked_nodes=range(-1, len(tree.token_ids)), logprobs=random.choice([1, 8, 512])
    )


def grow_beams(random: Random, step: dict[str, Any]) -> drafting.GrowBeamsRequest:
    tree = beams(random)
    ends = range(len(tree.token_ids) // 2, len(tree.token_ids))
    return drafting.GrowBeamsRequest(
        **step,
        tree=tree,
        beam_nodes=ends,
        beam_scores=[-random.random() for _ in ends],
        num_speculative_tokens=random.randint(1, MAX_PROPOSED),
        num_beams=random.randint(1, 8),
    )


def message_for(random: Random, name: str, sequence_id: str, other_id: str, prompt: int) -> Any:
    """For the method of this name; `sequence_id` is open on that prompt, `other_id` is not."""
    length = len(PROMPTS[prompt])
    step = {"sequence_id": sequence_id, "step": random.randrange(4), "base_length": length}
    propose = drafting.ProposeTokensRequest(**step, num_speculative_tokens=random.randint(1, MAX_PROPOSED))
    verify = verifying.VerifyProposalRequest(
        **step, proposal=proposal(random), include_probabilities=True, max_forced_tokens=8
    )
    if random.random() < 0.3:
        verify.next_proposal_count = random.randint(1, MAX_PROPOSED)
        verify.next_proposal_min_confidence = random.random()
    trace = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
    call = {"call_id": random.getrandbits(64), "trace_context": trace}
    messages = {
        "GenerateTokens": generate_request,
        "GetPairInfo": lambda _: generation.GetPairInfoRequest(),
        "ProposeTokens": lambda _: propose,
        "TakeTargetTokenizer": lambda _: drafting.TakeTargetTokenizerRequest(
            tokenizer_json_chunk=TOKENIZER.tokenizer_json, bos_token="<begin>", eos_token=TOKENIZER.eos_token
        ),
        "VerifyProposal": lambda _: verify,
        "StreamProposals": lambda _: drafting.StreamProposalsRequest(calls=[{**call, "request": propose}]),
        "StreamVerifications": lambda _: verification_stream(random, call, verify),
        "ScoreTokens": lambda _: verifying.ScoreTokensRequest(token_ids=tokens(random), logprobs=random.randint(0, 20)),
        "ScoreTree": lambda _: score_tree(random, step),
        "GrowBeams": lambda _: grow_beams(random, step),
        "GetModelInfo": lambda _: sequences.GetModelInfoRequest(),
        "GetTokenizer": lambda _: sequences.GetTokenizerRequest(),
        "OpenSequence": lambda _: sequences.OpenSequenceRequest(
            sequence_id=other_id, token_ids=tokens(random), **open_options(random)
        ),
        "RollbackSequence": lambda _: sequences.RollbackSequenceRequest(
            sequence_id=sequence_id, length=random.randint(1, length)
        ),
        "ForkSequence": lambda _: sequences.ForkSequenceRequest(
            sequence_id=sequence_id, forked_sequence_id=other_id, length=length, sampling=sampling(random)
        ),
        "CloseSequence": lambda _: sequences.CloseSequenceRequest(sequence_id=other_id),
    }
    return messages[name](random)
