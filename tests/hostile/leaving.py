"""Callers that disconnect in the middle, or stay connected and send nothing."""

import asyncio

from tests.hostile.attack import Attack
from tests.hostile.fuzz import choose
from tests.hostile.methods import OWN_METHODS, Method, method_of
from tests.hostile.truth import PROMPTS
from tests.hostile.valid import message_for
from tests.hostile.verdicts import LEFT, ORDERLY

CALLS_EACH = 6
MOST_SECONDS = 0.03


async def send_and_leave(attack: Attack) -> None:
    """Proper calls that are cancelled at any moment, or whose deadline passes at once."""
    random = attack.random
    for _ in range(CALLS_EACH):
        method, prompt, name = await choose(attack)
        message = message_for(random, method.name, name, attack.name(), prompt)
        moment = random.random() * MOST_SECONDS
        how = {"leave_after": moment} if random.random() < 0.7 else {"patience": moment}
        await attack.send(method, message, ORDERLY | LEFT, **how)


async def send_half(attack: Attack) -> None:
    """Streams that end, or break, while their calls are under way; and streams on which nothing comes."""
    random = attack.random
    for _ in range(CALLS_EACH):
        endpoint, stream = random.choice([("target", "StreamVerifications"), ("draft", "StreamProposals")])
        prompt = random.randrange(len(PROMPTS))
        name = await attack.open(endpoint, prompt)
        method = method_of(endpoint, stream)
        messages = [message_for(random, stream, name, name, prompt) for _ in range(random.randint(0, 4))]
        data = [message.SerializeToString() for message in messages]
        if random.random() < 0.3:
            data.append(b"\xff\xff\xff")  # what is under way is dropped
        moment = random.choice([None, random.random() * MOST_SECONDS])
        allowed = ORDERLY if moment is None else ORDERLY | LEFT
        await attack.send(method, data, allowed, leave_after=moment)


async def read_slowly(attack: Attack) -> None:
    """Many answers that are not read for a moment; then the caller disconnects."""
    random = attack.random
    await asyncio.gather(*(ask_and_leave(attack, random.choice(OWN_METHODS)) for _ in range(CALLS_EACH)))


async def ask_and_leave(attack: Attack, method: Method) -> None:
    message = message_for(attack.random, method.name, attack.name(), attack.name(), 0)
    await attack.send(method, message, ORDERLY | LEFT, leave_after=attack.random.random() * MOST_SECONDS)
