"""HTTP below its bodies: request lines, headers, chunks, pipelines, and slow clients."""

from collections.abc import Callable
from random import Random

from tests.hostile.attack import Attack
from tests.hostile.mutation import mutate
from tests.hostile.verdicts import HTTP_ANSWERS, HTTP_CLOSED, HTTP_OPEN
from tests.hostile.web import post

REQUESTS_EACH = 4
READING_SECONDS = 0.2
SLOW_SECONDS = 0.03
_BODY = b'{"prompt": [1, 2, 3], "max_tokens": 2}'
_PATHS = [
    "/",
    "/health",
    "/metrics",
    "/openapi.json",
    "/v1/models",
    "/v1/models/target",
    "/v1/models/" + "x" * 3000,
    "/v1/models/%00%0d%0a",
    "/../../../../etc/passwd",
    "/..%2f..%2f..%2f..%2fetc%2fpasswd",
    "/%2e%2e/%2e%2e/coordinator/serve.py",
    "/index.html/../../../app.py",
    "//etc/passwd",
    "/main.mjs\\..\\..\\app.py",
    "/%ff%fe",
    "/page%00.html",
    "/" + "a/" * 2000,
    "/v1/completions",
    "/tokenize",
    "/version",
    "/docs",
    "*",
    "http://evil.example/v1/models",
    "/?" + "q=1&" * 2000,
]
_METHODS = ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW", "get", "X" * 300]


def any_path(random: Random) -> bytes:
    line = f"{random.choice(_METHODS[:3] + _METHODS)} {random.choice(_PATHS)} HTTP/1.1\r\n"
    return line.encode() + b"host: localhost\r\nconnection: close\r\n\r\n"


def odd_header(random: Random) -> bytes:
    name, value = random.choice(
        [
            ("host", random.choice(["evil.example", "", "localhost:99999", "[::1", "a" * 5000])),
            ("x-request-id", random.choice(["../../x", "\x1b[31m", "x" * 5000, "a b"])),
            ("traceparent", "00-" + "z" * 100),
            ("authorization", "Bearer " + "x" * 9000),
            ("content-type", random.choice(["text/plain", "multipart/form-data", "application/json; charset=latin-1"])),
            ("accept", "x" * 3000),
            ("cookie", "a=b; " * 1000),
            ("expect", "100-continue"),
            ("range", "bytes=0-1,2-3,-1"),
            ("if-modified-since", "yesterday"),
            ("x", "y" * random.choice([60_000, 70_000, 300_000])),
            ("upgrade", "h2c"),
            ("transfer-encoding", random.choice(["gzip", "chunked, chunked", "identity", "x"])),
            ("content-length", random.choice(["-1", "1e3", "99999999999999999999", "0x10", "5, 5", " ", "1_0"])),
        ]
    )
    return post("/v1/completions", _BODY, f"{name}: {value}")


def chunks(random: Random) -> bytes:
    """A chunked body whose sizes are odd."""
    head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n"
    smuggled = random.choice([b"", b"content-length: 5\r\n"])
    size = random.choice([b"%x" % len(_BODY), b"-1", b"zz", b"fffffffffffffffff", b"", b"0" * 1000, b"5;" + b"e" * 500])
    end = random.choice(
        [b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n", b"0\n\n", b"garbage", b"0\r\n" + b"t: u\r\n" * 3000 + b"\r\n"]
    )
    return head + smuggled + b"\r\n" + size + b"\r\n" + _BODY + b"\r\n" + end


def pipeline(random: Random) -> bytes:
    """Several requests at once, the last of them invalid."""
    keep = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n" * random.randint(1, 20)
    return keep + random.choice([post("/v1/completions", _BODY), b"GARBAGE\r\n\r\n", any_path(random)])


def mutated(random: Random) -> bytes:
    return mutate(random, post("/v1/completions", _BODY))


def no_http(random: Random) -> bytes:
    return random.choice(
        [
            random.randbytes(200),
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + random.randbytes(100),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(20),
            b"GET /\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET  /  HTTP/1.1\r\n\r\n",
            b"\r\n" * 500,
            b"A" * 200_000,
            b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 20_000 + b"\r\n",
            b"GET / HTTP/1.1\r\n folded: x\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\nconnection: close\r\n\r\n",
            b"GET / HTTP/1.0\r\n\r\n",
        ]
    )


_MAKERS: list[Callable[[Random], bytes]] = [any_path, odd_header, odd_header, chunks, pipeline, mutated, no_http]


async def send_heads(attack: Attack) -> None:
    """Requests that are wrong below their bodies, with their end told, so that the server need not wait for more."""
    for _ in range(REQUESTS_EACH):
        data = attack.random.choice(_MAKERS)(attack.random)
        allowed = HTTP_ANSWERS | {HTTP_CLOSED, HTTP_OPEN, "HTTP 100", "HTTP 304", "HTTP 307", "HTTP 206", "HTTP 416"}
        reply = await attack.web(data, allowed, patience=READING_SECONDS)
        attack.check(b"root:x:" not in reply.data, "a file of the system was served")
        attack.check(b"import " not in reply.data or b"text/javascript" in reply.data, "source code was served")


async def send_slowly(attack: Attack) -> None:
    """A request in small pieces, possibly never completed; other requests are served meanwhile."""
    random = attack.random
    request = post("/v1/completions", _BODY)
    cuts = sorted(random.sample(range(1, len(request)), 4))
    pieces = [request[start:end] for start, end in zip([0, *cuts], [*cuts, len(request)], strict=True)]
    kept = pieces[: random.randint(1, len(pieces))]
    allowed = HTTP_ANSWERS | {HTTP_CLOSED, HTTP_OPEN}
    is_gone = random.random() < 0.5
    await attack.web(kept, allowed, pause=SLOW_SECONDS, leave=is_gone, patience=READING_SECONDS)


async def send_and_hang_up(attack: Attack) -> None:
    """Whole requests whose client disconnects at once, or closes its side and waits."""
    random = attack.random
    for _ in range(REQUESTS_EACH):
        stream = b'{"prompt": [1, 2, 3], "max_tokens": 40, "stream": true}'
        request = post("/v1/completions", random.choice([_BODY, stream]))
        how = random.choice([{"leave": True}, {"half_close": True, "patience": READING_SECONDS}])
        await attack.web(request, HTTP_ANSWERS | {HTTP_CLOSED, HTTP_OPEN, "HTTP 499"}, **how)
