"""Proposals that no honest draft can make; after each refusal the sequence must be unchanged."""

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from specpair.v1 import proposal_pb2
from specpair.v1 import target_service_pb2 as verifying
from tests.hostile.attack import Attack
from tests.hostile.fuzz import verdict_of
from tests.hostile.limits import MAX_PROPOSED, VOCABULARY
from tests.hostile.methods import method_of
from tests.hostile.truth import PROMPTS
from tests.hostile.valid import dense, numbers, sparse, tokens
from tests.hostile.verdicts import BAD_DISTRIBUTION, BAD_INPUT
from tests.hostile.wire import Reply

PROPOSALS_EACH = 20
REFUSED = frozenset({BAD_DISTRIBUTION})

Spoil = Callable[[Random, Any, list[int]], None]


def _spoil_counts(random: Random, message: Any, proposed: list[int]) -> None:
    counts = np.frombuffer(message.counts, dtype="<u4").copy()
    counts[random.randrange(len(counts))] += random.choice([1, 2**31])
    message.counts = counts.tobytes()


def _zero_count(random: Random, message: Any, proposed: list[int]) -> None:
    counts = np.frombuffer(message.counts, dtype="<u4").copy()
    counts[random.randrange(len(counts))] = 0
    message.counts = counts.tobytes()


def _cut_counts(random: Random, message: Any, proposed: list[int]) -> None:
    message.counts = message.counts[: -random.randint(1, 4)]


def _extend_ids(random: Random, message: Any, proposed: list[int]) -> None:
    message.token_ids += random.randbytes(random.randint(1, 8))


def _id_outside(random: Random, message: Any, proposed: list[int]) -> None:
    ids = np.frombuffer(message.token_ids, dtype="<u4").copy()
    ids[random.randrange(len(ids))] = random.choice([VOCABULARY, 2**31, 2**32 - 1])
    message.token_ids = ids.tobytes()


def _sizes_lie(random: Random, message: Any, proposed: list[int]) -> None:
    sizes = list(message.support_sizes)
    sizes[random.randrange(len(sizes))] = random.choice([0, 2**31, 2**32 - 1, VOCABULARY + 1])
    message.support_sizes[:] = sizes


def _row_missing(random: Random, message: Any, proposed: list[int]) -> None:
    message.support_sizes.append(1) if random.random() < 0.5 else message.support_sizes.pop()


def _wrong_total(random: Random, message: Any, proposed: list[int]) -> None:
    message.total_log2 = random.choice([0, message.total_log2 + 1, 30, 31, 64, 2**32 - 1])
    if message.total_log2 == 0:
        message.counts = numbers([2] * (len(message.counts) // 4))


def _same_id_twice(random: Random, message: Any, proposed: list[int]) -> None:
    message.Clear()
    message.support_sizes[:] = [2] * len(proposed)
    message.token_ids = numbers([token for token in proposed for _ in range(2)])
    message.counts = numbers([8] * 2 * len(proposed))
    message.total_log2 = 4


def _not_drawn_from(random: Random, message: Any, proposed: list[int]) -> None:
    """q(x) = 0 for one of the drafted tokens."""
    message.Clear()
    message.support_sizes[:] = [1] * len(proposed)
    wrong = random.randrange(len(proposed))
    message.token_ids = numbers([(token + (i == wrong)) % VOCABULARY for i, token in enumerate(proposed)])
    message.counts = numbers([16] * len(proposed))
    message.total_log2 = 4


_SPARSE: list[Spoil] = [
    _spoil_counts,
    _zero_count,
    _cut_counts,
    _extend_ids,
    _id_outside,
    _sizes_lie,
    _row_missing,
    _wrong_total,
    _same_id_twice,
    _not_drawn_from,
]


def _wrong_type(random: Random, message: Any, proposed: list[int]) -> None:
    message.type = random.choice([0, 2, 99, -1])


def _wrong_shape(random: Random, message: Any, proposed: list[int]) -> None:
    rows = len(proposed)
    shapes = [[], [rows], [rows, VOCABULARY, 1], [rows + 1, VOCABULARY], [rows, 0], [2**31, 2**31], [rows, 2**32 - 1]]
    message.shape[:] = random.choice(shapes)


def _wrong_size(random: Random, message: Any, proposed: list[int]) -> None:
    message.data = random.choice([b"", message.data[:-1], message.data + b"\0", message.data[: len(message.data) // 2]])


def _wrong_numbers(random: Random, message: Any, proposed: list[int]) -> None:
    rows = np.frombuffer(message.data, dtype="<f4").copy().reshape(len(proposed), VOCABULARY)
    value = random.choice([math.nan, math.inf, -math.inf, -1.0, 0.5, 2.0, 3.4e38])
    rows[random.randrange(len(proposed)), random.randrange(VOCABULARY)] += value
    message.data = rows.tobytes()


def _other_token(random: Random, message: Any, proposed: list[int]) -> None:
    rows = np.zeros((len(proposed), VOCABULARY), dtype="<f4")
    rows[np.arange(len(proposed)), [(token + 1) % VOCABULARY for token in proposed]] = 1.0
    message.data = rows.tobytes()


_DENSE: list[Spoil] = [_wrong_type, _wrong_shape, _wrong_size, _wrong_numbers, _other_token]


def bad_proposal(random: Random) -> proposal_pb2.Proposal:
    """Proposals, each of which breaks a rule."""
    proposed = tokens(random, MAX_PROPOSED)
    if random.random() < 0.15:
        outside = random.choice([VOCABULARY, 2**31, 2**32 - 1])
        return proposal_pb2.Proposal(token_ids=[*proposed[1:], outside])
    if random.random() < 0.7:
        distributions = sparse(random, proposed)
        random.choice(_SPARSE)(random, distributions.sparse, proposed)
    else:
        distributions = dense(proposed)
        random.choice(_DENSE)(random, distributions.dense.probabilities, proposed)
    return proposal_pb2.Proposal(token_ids=proposed, distributions=distributions)


async def send_bad_distributions(attack: Attack) -> None:
    """Each is refused, unary or on the stream, and the next proper call finds nothing changed."""
    random, prompt = attack.random, attack.random.randrange(len(PROMPTS))
    name = await attack.open("target", prompt, rule=random.choice([1, 2]), sampling={"temperature": 1.0, "seed": 5})
    for _ in range(PROPOSALS_EACH):
        request = verify(name, prompt, proposal=bad_proposal(random))
        await (send_on_stream(attack, request) if random.random() < 0.3 else send_alone(attack, request))
    await attack.call("target", "RollbackSequence", rollback_request(name, len(PROMPTS[prompt])))
    answer = await attack.call("target", "VerifyProposal", verify(name, prompt))
    attack.check(answer.length == len(PROMPTS[prompt]) + 1, f"refused proposals left a length of {answer.length}")


async def send_trees(attack: Attack) -> None:
    """Trees, and more tokens than allowed, are refused before any other check."""
    random, prompt = attack.random, attack.random.randrange(len(PROMPTS))
    name = await attack.open("target", prompt)
    for _ in range(PROPOSALS_EACH):
        request = verify(name, prompt, proposal={"token_ids": tokens(random)})
        if random.random() < 0.5:
            request.proposal.parent_indices.extend([random.choice([-1, 0, 5, -(2**31)])] * random.randint(1, 9))
        else:
            request.proposal.token_ids.extend([1] * random.choice([MAX_PROPOSED + 1, 1000, 100_000]))
        await attack.send(method_of("target", "VerifyProposal"), request, BAD_INPUT)
    answer = await attack.call("target", "VerifyProposal", verify(name, prompt))
    attack.check(answer.next_token_id == attack.truth.outputs[prompt][0], "refused proposals changed the next token")


async def send_alone(attack: Attack, request: Any) -> Reply:
    return await attack.send(method_of("target", "VerifyProposal"), request, REFUSED)


async def send_on_stream(attack: Attack, request: Any) -> None:
    method = method_of("target", "StreamVerifications")
    reply = await attack.send(method, verifying.StreamVerificationsRequest(calls=[{"call_id": 1, "request": request}]))
    answers: Any = [method.response_class.FromString(data) for data in reply.messages]
    verdicts = {verdict_of(answer) for message in answers for answer in message.answers}
    attack.check(verdicts == REFUSED, f"on the stream a bad proposal was answered with {verdicts}")


def verify(name: str, prompt: int, step: int = 0, **fields: Any) -> verifying.VerifyProposalRequest:
    return verifying.VerifyProposalRequest(sequence_id=name, step=step, base_length=len(PROMPTS[prompt]), **fields)


def rollback_request(name: str, length: int) -> Any:
    from specpair.v1 import sequence_service_pb2

    return sequence_service_pb2.RollbackSequenceRequest(sequence_id=name, length=length)
