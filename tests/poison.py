"""Makes a served model give NaN for one token, behind the back of the check at load, which would refuse it."""

from typing import Any

import torch

from specpair.models.fused_runner import FusedRunner
from specpair.models.native_runner import NativeRunner


def poison(host: Any, token_id: int) -> None:
    """From now on the embedding of `token_id` is NaN."""
    runner: Any = host.engine._turns.runner
    with torch.no_grad():
        embedding_of(runner)[token_id] = float("nan")


def embedding_of(runner: Any) -> Any:
    if isinstance(runner, NativeRunner):
        return runner._native.embedding
    is_fused = isinstance(runner, FusedRunner)
    return runner._fused._embedding if is_fused else runner._packed._model.get_input_embeddings().weight
