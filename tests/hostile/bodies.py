"""HTTP bodies: JSON that is broken, deep, huge, or of wrong types."""

import json
from random import Random
from typing import Any

from coordinator.http.parameters import ChatParameters, CompletionParameters
from coordinator.http.response_parameters import ResponseParameters
from coordinator.http.token_parameters import DetokenizeParameters, TokenizeParameters
from tests.hostile.attack import Attack
from tests.hostile.extremes import TEXTS
from tests.hostile.limits import MAX_BODY_BYTES, MAX_LENGTH, VOCABULARY
from tests.hostile.mutation import mutate
from tests.hostile.verdicts import HTTP_ANSWERS, HTTP_CLOSED, HTTP_REFUSALS
from tests.hostile.web import WebReply, post

REQUESTS_EACH = 4
PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/tokenize", "/detokenize")
_ANYTHING: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    0.5,
    -0.0,
    2**31,
    2**32,
    2**53 + 1,
    2**63,
    2**64,
    10**30,
    10**400,
    1e308,
    float("nan"),
    float("inf"),
    float("-inf"),
    MAX_LENGTH,
    VOCABULARY,
    "",
    [],
    {},
    [[]],
    [None],
    [{}],
    {"a": 1},
    [1, "a", None],
    ["a"] * 200,
    [1] * 5000,
    {str(token): 1 for token in range(1100)},
    *TEXTS,
]
_SURROGATES = ('"\\ud800"', '"\\udc00\\ud800"', '"a\\udfffb"', '["\\ud834"]')
_BODIES = (CompletionParameters, ChatParameters, ResponseParameters, TokenizeParameters, DetokenizeParameters)
_FIELDS = sorted({name for body in _BODIES for name in body.model_fields})


def valid_body(random: Random, path: str) -> dict[str, Any]:
    body: dict[str, Any] = {"max_tokens": 3}
    if path == PATHS[0]:
        body["prompt"] = random.choice(["def f(", [1, 2, 3], ["a", "b"], [[1], [2, 3]]])
    elif path == "/v1/responses":
        del body["max_tokens"]
        call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
        body["max_output_tokens"] = 3
        body["input"] = random.choice(["def f(", [{"role": "user", "content": "Hi"}], [call]])
    elif path == "/detokenize":
        body["tokens"] = [1, 2, 3]
    elif path == "/tokenize" and random.random() < 0.5:
        body["prompt"] = random.choice(["def f(", ""])
    else:
        body["messages"] = [{"role": "user", "content": random.choice(["Hi", [{"type": "text", "text": "x"}]])}]
    for name, values in {
        "stream": [True],
        "temperature": [0, 1.0],
        "logprobs": [1 if path == PATHS[0] else True],
        "n": [1 if path == "/v1/responses" else 2],
        "num_speculative_tokens": [0, 3],
        "stream_options": [{"include_usage": True}],
    }.items():
        if random.random() < 0.25:
            body[name] = random.choice(values)
    return body


def changed(random: Random, value: Any, depth: int = 0) -> Any:
    """The value with a part of it replaced."""
    if depth < 4 and isinstance(value, dict) and value and random.random() < 0.7:
        key = random.choice(list(value))
        return {**value, key: changed(random, value[key], depth + 1)}
    if depth < 4 and isinstance(value, list) and value and random.random() < 0.7:
        place = random.randrange(len(value))
        return [*value[:place], changed(random, value[place], depth + 1), *value[place + 1 :]]
    return random.choice(_ANYTHING)


async def send_types(attack: Attack) -> None:
    """Bodies with values of other types and sizes."""
    random = attack.random
    for _ in range(REQUESTS_EACH):
        path = random.choice(PATHS)
        body: Any = valid_body(random, path)
        for _ in range(random.choice([1, 1, 2])):
            name = random.choice(_FIELDS)
            is_flat = isinstance(body, dict) and random.random() < 0.7
            body = {**body, name: random.choice(_ANYTHING)} if is_flat else changed(random, body)
        data = json.dumps(body, ensure_ascii=random.random() < 0.5).encode(errors="surrogatepass")
        judge_body(attack, await attack.web(post(path, data), HTTP_ANSWERS))


async def send_broken_json(attack: Attack) -> None:
    """Bytes that are not, or only almost, JSON."""
    random = attack.random
    for _ in range(REQUESTS_EACH):
        path = random.choice(PATHS)
        data = broken_json(random, valid_body(random, path))
        judge_body(attack, await attack.web(post(path, data), HTTP_ANSWERS))


def broken_json(random: Random, body: dict[str, Any]) -> bytes:
    text = json.dumps(body)
    depth = random.choice([50, 1000, 100_000])
    number = random.choice(["1" * 5000, "-", "1e999999", "0x10", "01", "1.", "+1", "NaN", "Infinity", "1" * 400 + ".5"])
    return random.choice(
        [
            lambda: mutate(random, text.encode()),
            lambda: b"[" * depth,
            lambda: b'{"prompt":' * depth + b"1" + b"}" * depth,
            lambda: f'{{"prompt": {"[" * depth}{"]" * depth}}}'.encode(),
            lambda: f'{{"prompt": "a", "max_tokens": {number}}}'.encode(),
            lambda: f'{{"prompt": {random.choice(_SURROGATES)}, "max_tokens": 1}}'.encode(),
            lambda: f'{{"prompt": "a", "max_tokens": 1, "prompt": "b", "prompt": {number}}}'.encode(),
            lambda: text.encode("utf-16"),
            lambda: b"\xef\xbb\xbf" + text.encode(),
            lambda: text.encode() + b"\x00" * 10,
            lambda: text.replace('"', "'").encode(),
            lambda: text.encode() + text.encode(),
            lambda: random.randbytes(random.choice([0, 1, 100])),
            lambda: json.dumps(random.choice(_ANYTHING)).encode(),
        ]
    )()


async def send_large_body(attack: Attack) -> None:
    """Bodies about as large as the limit, or larger."""
    random = attack.random
    size = random.choice([MAX_BODY_BYTES - 100, MAX_BODY_BYTES + 1, 2 * MAX_BODY_BYTES])
    prompt = random.choice([b'"' + b"a" * size + b'"', b"[" + b"1," * (size // 2) + b"1]", b"[" * size])
    request = post(random.choice(PATHS), b'{"max_tokens": 1, "prompt": ' + prompt + b"}")
    # Where the server hangs up while the body comes, the answer may be lost on the way.
    judge_body(attack, await attack.web(request, HTTP_REFUSALS | {HTTP_CLOSED}))


def judge_body(attack: Attack, reply: WebReply) -> None:
    """A refusal has OpenAI's form; so has an error in the middle of a stream."""
    body = reply.body
    if reply.verdicts == ["HTTP 200"] or HTTP_CLOSED in reply.verdicts or not body.startswith(b"{"):
        return
    error = json.loads(body).get("error", {})
    attack.check({"message", "type", "param", "code"} <= set(error), f"{reply.verdicts} has the body {body[:200]!r}")
