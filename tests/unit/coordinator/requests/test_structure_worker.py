"""The process that checks structured outputs, with tokenizers that it cannot use."""

import pytest

from coordinator.requests.structure_checks import StructureChecks
from models.t5.tokenizer import make_tokenizer
from specpair.errors import InvalidGrammarError
from specpair.options import StructuredOutput, StructureKind


async def test_a_tokenizer_that_cannot_be_used_is_named() -> None:
    tokenizer = make_tokenizer()
    assert isinstance(tokenizer.eos_token_id, int)
    checks = StructureChecks(tokenizer.backend_tokenizer.to_str(), len(tokenizer), (tokenizer.eos_token_id,))
    try:
        for source in ("dog|house", "[a-z]+"):
            with pytest.raises(InvalidGrammarError, match="cannot be used with the target's tokenizer"):
                await checks.check(StructuredOutput(kind=StructureKind.REGEX, source=source))
    finally:
        await checks.close()
