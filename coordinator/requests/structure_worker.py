"""The process that checks structured outputs: it compiles each one within limits, or is ended by the system.

Speaks JSON, a line for each message: first the vocabulary, then one structured output after the other.
"""

import json
import resource
import signal
import sys
from pathlib import Path

from specpair.errors import InvalidGrammarError
from specpair.grammars.compiling import GrammarCompiler
from specpair.options import StructuredOutput, StructureKind

CPU_SECONDS = 0.5
"""Processor time of one check; after that the system ends the process."""
MEMORY_BYTES = 512 << 20
"""Memory beside what the process has once it knows the vocabulary."""


def main() -> None:
    """Answers until its input ends."""
    known = json.loads(sys.stdin.readline())
    try:
        compiler = GrammarCompiler(known["tokenizer"].encode(), known["vocab_size"], known["eos_token_ids"])
    except ValueError:
        answer({"ready": False})
        return
    limit_memory()
    answer({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        structured = StructuredOutput(kind=StructureKind(asked["kind"]), source=asked["source"])
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # its signal ends a process that has no handler for it
        problem = problem_of(compiler, structured)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        answer({"problem": problem})


def problem_of(compiler: GrammarCompiler, structured: StructuredOutput) -> str | None:
    """Why the structured output cannot be used; None if it can."""
    try:
        compiler.compile(structured).check_start()
    except InvalidGrammarError as error:
        return error.message.removeprefix(f"{error.metadata['field']}: ")
    return None


def limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        limit = pages * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def answer(message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
