"""Hand-made HTTP/2 frames on the gRPC ports, which no client library would send."""

from random import Random

from tests.hostile.attack import Attack
from tests.hostile.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    header,
    proper_head,
)
from tests.hostile.methods import EVERYWHERE, OWN_METHODS
from tests.hostile.mutation import noise
from tests.hostile.valid import message_for
from tests.hostile.verdicts import leak_in
from tests.hostile.web import exchange

CONNECTIONS_EACH = 4
_OTHERS = ("OpenSequence", "ForkSequence", "GenerateTokens", "GetTokenizer")
_TOLD_NOTHING = [method for method in OWN_METHODS if method.name not in _OTHERS]
"""Methods that open nothing, and whose answers hold no text of models."""
READING_SECONDS = 0.05


def head(random: Random, path: str) -> bytes:
    """Headers of a call, one of them wrong."""
    fields = proper_head(path.encode())
    name, values = random.choice(
        [
            ("grpc-timeout", [b"abc", b"-1S", b"99999999999999999H", b"1", b"0n", b"1S1S", b"\xff"]),
            ("grpc-encoding", [b"zip-of-doom", b"gzip", b"", b"\x00"]),
            ("content-type", [b"text/html", b"application/grpc+json", b"", b"application/grpc;" + b"x" * 500]),
            ("te", [b"", b"gzip"]),
            (":method", [b"GET", b"PUT", b"", b"\x00"]),
            (":path", [b"", b"*", b"no-slash", b"/" + b"a" * 3000, b"/a\r\nb: c"]),
            (":authority", [b"", b"evil.example", b"\x00"]),
            (":unknown", [b"x"]),
            ("x-bin", [b"not base64!!"]),
            ("X-Upper", [b"y"]),
            ("x", [b"a\r\nb", b"\x00", b"y" * 20_000]),
            ("content-length", [b"99999999", b"-1"]),
        ]
    )
    fields[name] = random.choice(values)
    return b"".join(header(key, value) for key, value in fields.items())


def grpc_frame(random: Random, data: bytes) -> bytes:
    """A message with its prefix, in which flag or length may be wrong."""
    flag = random.choice([0, 0, 0, 1, 2, 255])
    length = random.choice([len(data)] * 3 + [0, len(data) + 1, 2**31, 2**32 - 1])
    return bytes([flag]) + length.to_bytes(4, "big") + data


def hostile_bytes(random: Random) -> bytes:
    """All that one connection sends."""
    if random.random() < 0.2:
        return random.choice([noise(random), b"GET / HTTP/1.1\r\n\r\n", PREFACE[:10], b"\x16\x03\x01" + noise(random)])
    method = random.choice(_TOLD_NOTHING)
    data = message_for(random, method.name, "nobody", "nobody", 0).SerializeToString()
    begin = PREFACE + frame(SETTINGS, 0, 0, b"")
    flags = random.choice([END_HEADERS, END_HEADERS | END_STREAM, 0])
    call = frame(HEADERS, flags, 1, head(random, method.path))
    body = frame(DATA, random.choice([0, END_STREAM]), 1, grpc_frame(random, data)[:16_000])
    others = [
        frame(RST_STREAM, 0, 1, b"\0\0\0\x08"),
        frame(PING, 0, 0, noise(random)[:8]),
        frame(GOAWAY, 0, 0, bytes(8)),
        frame(WINDOW_UPDATE, 0, random.choice([0, 1]), random.choice([bytes(4), b"\x7f\xff\xff\xff"])),
        frame(CONTINUATION, 0, 1, noise(random)),
        frame(SETTINGS, 0, 0, random.randbytes(6)),
        frame(DATA, 0, random.choice([0, 2, 3]), b"x"),
        frame(random.randrange(256), random.randrange(256), random.getrandbits(31), noise(random)[:1000]),
        frame(DATA, 0, 1, b"x", length=2**24 - 1),
        frame(HEADERS, END_HEADERS, 3, noise(random)),
    ]
    return begin + call + body + b"".join(random.sample(others, random.randint(0, 4)))


async def send_frames(attack: Attack) -> None:
    """Broken connections. gRPC answers or closes them; it must leak nothing and keep serving others."""
    random = attack.random
    for _ in range(CONNECTIONS_EACH):
        address = attack.wire.addresses[random.choice(EVERYWHERE)]
        attack.count(1)
        half_close = random.random() < 0.3
        reply = await exchange(address, [hostile_bytes(random)], patience=READING_SECONDS, half_close=half_close)
        attack.tally.verdicts["HTTP/2 closed" if reply.has_ended else "HTTP/2 open"] += 1
        leak = leak_in(reply.text)
        attack.check(leak is None, f"a broken connection leaks {leak}")
