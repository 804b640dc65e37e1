"""Frames of HTTP/2, made by hand."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, flags: int, stream: int, payload: bytes, length: int | None = None) -> bytes:
    """`length` may be wrong."""
    said = len(payload) if length is None else length
    return said.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def header(name: str, value: bytes) -> bytes:
    """A literal header without index and Huffman coding."""
    key = name.encode()
    return b"\x00" + string(key) + string(value)


def string(data: bytes) -> bytes:
    """With HPACK's length of a 7-bit prefix."""
    if len(data) < 127:
        return bytes([len(data)]) + data
    rest, encoded = len(data) - 127, b"\x7f"
    while rest > 127:
        encoded += bytes([rest & 127 | 128])
        rest >>= 7
    return encoded + bytes([rest]) + data


def proper_head(path: bytes) -> dict[str, bytes]:
    return {
        ":method": b"POST",
        ":scheme": b"http",
        ":path": path,
        ":authority": b"localhost",
        "te": b"trailers",
        "content-type": b"application/grpc",
    }


def deadly_call() -> bytes:
    """A call whose path is not UTF-8. It ends grpc.aio's server, which disturbs other cases, so no mix has it."""
    headers = b"".join(header(key, value) for key, value in proper_head(b"/\xff\xfe").items())
    return PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS | END_STREAM, 1, headers)
