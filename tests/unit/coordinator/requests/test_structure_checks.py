"""The processes that check structured outputs."""

import json

import pytest

from coordinator.requests.structure_checks import StructureChecks
from models.t5.tokenizer import make_tokenizer
from specpair.errors import NotSupportedError
from specpair.options import StructuredOutput, StructureKind


async def test_a_tokenizer_that_no_structure_can_use_is_named() -> None:
    """It has a decoder for words, with which tokens have no bytes of their own."""
    tokenizer = make_tokenizer()
    text = tokenizer.backend_tokenizer.to_str()
    assert json.loads(text)["decoder"]["type"] == "WordPiece"
    checks = StructureChecks(text, len(tokenizer), (1,))
    with pytest.raises(NotSupportedError, match="structured_output: the model's tokenizer"):
        await checks.check(StructuredOutput(kind=StructureKind.REGEX, source="a"))
    await checks.close()
