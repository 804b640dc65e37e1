"""Reads a target's tokenizer from the pieces in which it is handed over."""

import asyncio
from collections.abc import AsyncIterator

from specpair.errors import ClientStalledError, InvalidFieldError
from specpair.model_info import TokenizerFiles
from specpair.options import check_count
from specpair.rpc.decoding import readable
from specpair.v1 import draft_service_pb2 as pb

MAX_BYTES = 64 * 1024 * 1024
"""Of all pieces together; the largest tokenizers in use have half of it."""
MOST_READ_BYTES = 2 * MAX_BYTES
MAX_NAME_LENGTH = 1024
"""Characters of the name of a special token."""


MAX_SECONDS = 60.0
"""In which all pieces have to come."""


async def read_target_tokenizer(pieces: AsyncIterator[pb.TakeTargetTokenizerRequest]) -> TokenizerFiles:
    """The tokenizer. Raises InvalidFieldError if it is empty or too large, ClientStalledError if it does not come."""
    try:
        async with asyncio.timeout(MAX_SECONDS):
            return await _joined(pieces)
    except TimeoutError:
        raise ClientStalledError(MAX_SECONDS) from None


async def _joined(pieces: AsyncIterator[pb.TakeTargetTokenizerRequest]) -> TokenizerFiles:
    """Reads the stream to its end even if it is refused: a caller who still sends might not get the reason."""
    chunks: list[bytes] = []
    size = 0
    first: pb.TakeTargetTokenizerRequest | None = None
    async for piece in pieces:
        message: pb.TakeTargetTokenizerRequest = readable(piece)
        first = first or message
        size += len(message.tokenizer_json_chunk) or MAX_BYTES
        if size <= MAX_BYTES:
            chunks.append(message.tokenizer_json_chunk)
        elif size > MOST_READ_BYTES:
            break
    if first is None or not first.tokenizer_json_chunk:
        raise InvalidFieldError("tokenizer_json_chunk", "is empty: a tokenizer is needed")
    if size > MAX_BYTES:
        words = f"has an empty piece, or comes to more than {MAX_BYTES} bytes"
        raise InvalidFieldError("tokenizer_json_chunk", words, limit=MAX_BYTES)
    check_count("bos_token", len(first.bos_token), MAX_NAME_LENGTH)
    check_count("eos_token", len(first.eos_token), MAX_NAME_LENGTH)
    return TokenizerFiles(
        tokenizer_json=b"".join(chunks), chat_template="", bos_token=first.bos_token, eos_token=first.eos_token
    )
