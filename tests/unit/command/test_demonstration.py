"""`make run` has to start on every machine."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_its_options_leave_the_type_to_the_machine() -> None:
    """Where a processor has no units for bfloat16, the runners of quantised weights refuse that type by name."""
    flags = re.search(r"^REAL := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert flags is not None and "--draft-quantization int4" in flags[1]
    assert "dtype" not in flags[1]
