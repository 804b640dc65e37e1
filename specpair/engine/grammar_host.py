"""The structured outputs that a model process can follow. Compiles them in a thread, off the event loop."""

import asyncio
import logging

from specpair.errors import InvalidGrammarError, NotSupportedError
from specpair.grammars.compiling import GrammarCompiler
from specpair.grammars.grammar import Grammar
from specpair.models.model_facts import ModelFacts
from specpair.options import StructuredOutput

log = logging.getLogger(__name__)


class GrammarHost:
    """Of one model. Its compiler is made when the first structured output comes: it reads the whole vocabulary."""

    def __init__(self, facts: ModelFacts):
        self._tokenizer = facts.tokenizer
        self._vocab_size = facts.vocab_size
        self._eos = [token for token in facts.eos_token_ids if token < facts.vocab_size]
        self._compiler: GrammarCompiler | None = None
        self._making = asyncio.Lock()

    @property
    def is_available(self) -> bool:
        """Whether the model has what structured outputs need: texts for its tokens, and one that ends a text."""
        return self._tokenizer is not None and bool(self._eos)

    async def compile(self, structured: StructuredOutput) -> Grammar:
        """The grammar. Raises InvalidGrammarError, and NotSupportedError if this model can have none."""
        compiler = await self._ready()
        return await asyncio.to_thread(compiler.compile, structured)

    async def compile_if_possible(self, structured: StructuredOutput | None) -> Grammar | None:
        """The same for a process that may do without; None then."""
        if structured is None or not self.is_available:
            return None
        try:
            return await self.compile(structured)
        except (InvalidGrammarError, NotSupportedError) as error:
            log.info("not followed: %s", error.message)
            return None

    async def _ready(self) -> GrammarCompiler:
        if self._tokenizer is None or not self._eos:
            raise NotSupportedError("structured_output: the model has no tokenizer, or no token that ends a text")
        async with self._making:
            if self._compiler is None:
                files = self._tokenizer.tokenizer_json
                try:
                    self._compiler = await asyncio.to_thread(GrammarCompiler, files, self._vocab_size, self._eos)
                except ValueError as error:
                    log.warning("the tokenizer cannot be used for structured outputs", exc_info=error)
                    raise NotSupportedError("structured_output: the model's tokenizer cannot be used for it") from None
            return self._compiler
