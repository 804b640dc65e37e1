"""Targets that go on by themselves: without a head, with one that proposes chains, with one that proposes trees."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.services import RunningModel, engine_config, running_target
from tests.tiny_heads import make_head
from tests.tiny_models import make_model

VOCABULARY = 12
"""Few, so that an untrained head is right at times."""


@asynccontextmanager
async def running_targets(folder: Path) -> AsyncIterator[dict[str, RunningModel]]:
    """The three, by what proposes: "none", "chains", "trees"."""
    model = make_model(folder / "target", seed=1, vocab_size=VOCABULARY, num_hidden_layers=3)
    head = str(make_head(folder / "head", vocab_size=VOCABULARY))
    async with AsyncExitStack() as stack:
        yield {
            "none": await stack.enter_async_context(running_target(engine_config(model))),
            "chains": await stack.enter_async_context(running_target(engine_config(model, head=head))),
            "trees": await stack.enter_async_context(
                running_target(engine_config(model, head=head, head_tree_tokens=7))
            ),
        }
