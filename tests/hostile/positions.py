"""Hot calls that are repeated, reordered, late, or meant for another sequence."""

import asyncio
from typing import Any

from specpair.v1 import draft_service_pb2 as drafting
from specpair.v1 import sequence_service_pb2 as sequences
from specpair.v1 import target_service_pb2 as verifying
from tests.hostile.attack import Attack
from tests.hostile.fuzz import judge_answers
from tests.hostile.limits import MAX_LENGTH, MAX_PROPOSED
from tests.hostile.methods import MODELS, method_of
from tests.hostile.truth import PROMPTS
from tests.hostile.valid import condition
from tests.hostile.verdicts import (
    BAD_FIELD,
    NOT_FOUND,
    OK,
    OTHER_BODY,
    OUT_OF_RANGE,
    STALE,
    WRONG_BASE,
)
from tests.hostile.wire import PATIENCE

HOT = {"target": "VerifyProposal", "draft": "ProposeTokens"}
STREAM = {"target": "StreamVerifications", "draft": "StreamProposals"}
CALLS_EACH = 20
ON_A_STREAM = 24
REORDERED = frozenset({OK, STALE, WRONG_BASE, OTHER_BODY})


def hot_request(endpoint: str, name: str, step: int, base_length: int, **fields: Any) -> Any:
    position = {"sequence_id": name, "step": step, "base_length": base_length}
    if endpoint == "target":
        return verifying.VerifyProposalRequest(**position, **fields)
    return drafting.ProposeTokensRequest(**position, **{"num_speculative_tokens": 3, **fields})


def content(endpoint: str, data: bytes) -> Any:
    """An answer without its times."""
    answer: Any = method_of(endpoint, HOT[endpoint]).response_class.FromString(data)
    if endpoint == "target":
        return answer.step, answer.accepted_count, answer.next_token_id, answer.length
    return answer.step, tuple(answer.proposal.token_ids), answer.proposal.distributions.SerializeToString()


class Position:
    """A sequence and where it stands."""

    def __init__(self, attack: Attack, endpoint: str, prompt: int, name: str):
        self.attack = attack
        self.endpoint = endpoint
        self.name = name
        self.length = len(PROMPTS[prompt])
        self.step = 5
        self.last: bytes = b""
        """The last step's request."""
        self.answer: Any = None

    async def advance(self) -> None:
        """A proper step."""
        self.step += 1
        request = hot_request(self.endpoint, self.name, self.step, self.length)
        answer = await self.attack.call(self.endpoint, HOT[self.endpoint], request)
        self.last, self.answer = request.SerializeToString(), content(self.endpoint, answer.SerializeToString())
        if self.endpoint == "target":
            self.length = answer.length

    async def send(self, request: Any, verdict: str) -> list[bytes]:
        hot = method_of(self.endpoint, HOT[self.endpoint])
        return (await self.attack.send(hot, request, frozenset({verdict}))).messages

    async def replay(self) -> None:
        """The same call again gets the same answer."""
        for data in await self.send(self.last, OK):
            said = content(self.endpoint, data)
            self.attack.check(said == self.answer, f"a replay says {said}, not {self.answer}")

    async def conflict(self) -> None:
        other = hot_request(self.endpoint, self.name, self.step, self.length + 1)
        await self.send(other, OTHER_BODY)

    async def be_late(self) -> None:
        step = self.attack.random.randrange(self.step)
        await self.send(hot_request(self.endpoint, self.name, step, self.length), STALE)

    async def hope(self) -> None:
        """A call whose base length is above what is held."""
        more = self.attack.random.choice([1, 5, 2**31, 2**32 - 1 - self.length])
        await self.send(hot_request(self.endpoint, self.name, 2**64 - 1, self.length + more), WRONG_BASE)

    async def be_nowhere(self) -> None:
        await self.send(hot_request(self.endpoint, self.name, 2**64 - 1, 0), BAD_FIELD)

    async def be_too_long(self) -> None:
        appended = [1] * self.attack.random.choice([MAX_LENGTH, MAX_LENGTH + 1, 5000])
        request = hot_request(self.endpoint, self.name, 2**64 - 1, self.length, appended_token_ids=appended)
        await self.send(request, BAD_FIELD)

    async def be_another(self) -> None:
        """The steps of this sequence on another one, or on none."""
        name = self.attack.random.choice([self.name + "x", self.name.upper(), "é" + self.name])
        await self.send(hot_request(self.endpoint, name, self.step, self.length), NOT_FOUND)

    async def guess(self) -> None:
        """A call in case a verdict is another than it is, or of a step that is not the last one: told without an
        answer, it does nothing; else it is refused."""
        if self.endpoint != "target":
            return await self.be_late()
        step, accepted, token, *_ = self.answer
        wrong = self.attack.random.choice([(step, accepted + 1, token), (step, accepted, token ^ 1), (0, 0, token)])
        condition = dict(zip(("step", "accepted_count", "next_token_id"), wrong, strict=True))
        request = hot_request("target", self.name, 2**64 - 1, self.length, condition=condition)
        await self.send(request, BAD_FIELD)
        told = verifying.StreamVerificationsRequest(calls=[{"request": request, "is_unanswered": True}])
        reply = await self.attack.send(method_of("target", STREAM["target"]), told, frozenset({OK}))
        self.attack.check(not reply.messages, "a call that is told has an answer")

    async def roll_back_too_far(self) -> None:
        length = self.attack.random.choice([0, self.length + MAX_PROPOSED + 2, 2**32 - 1])
        request = sequences.RollbackSequenceRequest(sequence_id=self.name, length=length)
        method = method_of(self.endpoint, "RollbackSequence")
        await self.attack.send(method, request, frozenset({OUT_OF_RANGE}))

    async def ask_too_much(self) -> None:
        if self.endpoint == "target":
            return await self.be_too_long()
        count = self.attack.random.choice([0, MAX_PROPOSED + 1, 2**32 - 1])
        request = hot_request("draft", self.name, 2**64 - 1, self.length, num_speculative_tokens=count)
        await self.send(request, BAD_FIELD)


async def send_positions(attack: Attack) -> None:
    """Wrong calls in any order, each with exactly its status; then the sequence gives the same answers as before."""
    random = attack.random
    endpoint, prompt = random.choice(MODELS), random.randrange(len(PROMPTS))
    position = Position(attack, endpoint, prompt, await attack.open(endpoint, prompt))
    await position.advance()
    wrong = [
        position.replay,
        position.conflict,
        position.be_late,
        position.hope,
        position.be_nowhere,
        position.be_too_long,
        position.be_another,
        position.guess,
        position.roll_back_too_far,
        position.ask_too_much,
    ]
    for _ in range(CALLS_EACH):
        await random.choice(wrong)()
    await check_unharmed(attack, endpoint, prompt, position.name, position.step + 1)


async def check_unharmed(attack: Attack, endpoint: str, prompt: int, name: str, step: int) -> None:
    """From the prompt on, a proper call says what it said before the attack."""
    request = hot_request(endpoint, name, step, len(PROMPTS[prompt]))
    answer = await attack.call(endpoint, HOT[endpoint], request)
    if endpoint == "target":
        expected, said = attack.truth.outputs[prompt][:1], (answer.next_token_id,)
    else:
        expected, said = attack.truth.proposals[prompt][:3], tuple(answer.proposal.token_ids)
    attack.check(said == expected, f"{endpoint} says {said} after prompt {prompt}; it was {expected}")


async def send_reordered(attack: Attack) -> None:
    """Steps of several sequences on one stream, shuffled, some twice, some with another body, some told before the
    verdict that they depend on."""
    random = attack.random
    endpoint = random.choice(MODELS)
    prompts = [random.randrange(len(PROMPTS)) for _ in range(3)]
    names = [await attack.open(endpoint, prompt) for prompt in prompts]
    calls = []
    for call_id in range(ON_A_STREAM):
        which = random.randrange(len(names))
        base = len(PROMPTS[prompts[which]]) + random.choice([0, 0, 0, 1, 2])
        request = hot_request(endpoint, names[which], random.randrange(8), base)
        is_told = endpoint == "target" and request.step > 0 and random.random() < 0.5
        if is_told:
            request.condition.CopyFrom(guessed(attack, request.step, prompts[which]))
        calls.append(
            {"request": request, "is_unanswered": True} if is_told else {"call_id": call_id, "request": request}
        )
    random.shuffle(calls)
    method = method_of(endpoint, STREAM[endpoint])
    messages = []
    while calls:
        together, calls = calls[: random.randint(1, 6)], calls[6:]
        messages.append(method.request_class(calls=together).SerializeToString())
    reply = await attack.send(method, messages, frozenset({OK}))
    answers = judge_answers(attack, method, reply.messages, REORDERED)
    made = [call for data in messages for call in method.request_class.FromString(data).calls]  # type: ignore[attr-defined]
    sent = [call.call_id for call in made if not call.is_unanswered]
    attack.check(sorted(answer.call_id for answer in answers) == sorted(sent), "calls without an answer, or with two")
    for name, prompt in zip(names, prompts, strict=True):
        await come_to_rest(attack, endpoint, name, prompt)
        await check_unharmed(attack, endpoint, prompt, name, 100)


def guessed(attack: Attack, step: int, prompt: int) -> verifying.Condition:
    """A verdict of an earlier step, often that of a plain one after the prompt."""
    if attack.random.random() < 0.5:
        return condition(attack.random, step)
    return verifying.Condition(step=step - 1, next_token_id=attack.truth.outputs[prompt][0])


async def come_to_rest(attack: Attack, endpoint: str, name: str, prompt: int) -> None:
    """Waits for a step that began for a call that was told: nobody got an answer when it ended."""
    method = method_of(endpoint, "RollbackSequence")
    request = sequences.RollbackSequenceRequest(sequence_id=name, length=len(PROMPTS[prompt])).SerializeToString()
    async with asyncio.timeout(PATIENCE):
        while (await attack.wire.call(method, [request])).verdict == STALE:
            await asyncio.sleep(0.01)


async def send_closed(attack: Attack) -> None:
    """Calls to sequences that were closed, closed twice, or never opened; and forks of nothing."""
    random = attack.random
    endpoint, prompt = random.choice(MODELS), random.randrange(len(PROMPTS))
    name = await attack.open(endpoint, prompt)
    for _ in range(2):
        await attack.send(
            method_of(endpoint, "CloseSequence"), sequences.CloseSequenceRequest(sequence_id=name), frozenset({OK})
        )
    gone = frozenset({NOT_FOUND})
    await attack.send(method_of(endpoint, HOT[endpoint]), hot_request(endpoint, name, 0, 1), gone)
    rollback = sequences.RollbackSequenceRequest(sequence_id=name, length=1)
    await attack.send(method_of(endpoint, "RollbackSequence"), rollback, gone)
    fork = sequences.ForkSequenceRequest(sequence_id=name, forked_sequence_id=attack.name())
    await attack.send(method_of(endpoint, "ForkSequence"), fork, gone)
