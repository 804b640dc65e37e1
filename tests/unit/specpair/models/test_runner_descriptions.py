"""How a runner is called in the log and in `specpair info`."""

from typing import get_args, get_type_hints

import pytest

from specpair.engine_config import EngineConfig
from specpair.models.capture import EagerCapture, GraphCapture
from specpair.models.load_runner import Kind

CHOICES = set(get_args(get_type_hints(EngineConfig)["runner"])) - {"auto"}
(RUNNERS,) = get_args(Kind)


@pytest.mark.parametrize("kind", [*get_args(RUNNERS), EagerCapture, GraphCapture])
def test_a_description_begins_with_the_choice_of_the_runner_flag(kind: type) -> None:
    description: str = vars(kind)["description"]
    assert description.split()[0] in CHOICES
