"""Reads one rank's share of a model: transformers divides the layers by the model's own plan."""

from typing import Any

import torch
from transformers import PreTrainedModel

from specpair.engine_config import EngineConfig
from specpair.errors import ModelRefusedError
from specpair.models.checkpoint import LENDER, Checkpoint
from specpair.models.folder_checkpoint import FolderCheckpoint
from specpair.models.weights import read_weights
from specpair.sharding.refusals import refuse_undivided


def read_share(
    config: EngineConfig, checkpoint: Checkpoint, settings: Any, dtype: torch.dtype, attention: str
) -> PreTrainedModel:
    """This rank's share, on its device; all ranks of the process's group read theirs at once. Raises
    ModelRefusedError."""
    size = config.tensor_parallel_size
    if not isinstance(checkpoint, FolderCheckpoint) or hasattr(settings, LENDER):
        raise ModelRefusedError(
            f"{config.model} cannot be served with --tensor-parallel-size {size}: only whole models in transformers'"
            " format can"
        )
    refuse_undivided(settings, size)
    from transformers.distributed.configuration_utils import DistributedConfig  # only where it is used: it loads much

    shared = DistributedConfig(tp_size=size)
    return read_weights(config.model, settings, dtype, torch.device("cpu"), attention, distributed_config=shared)


def refuse_options(config: EngineConfig) -> None:
    """Raises ModelRefusedError for options that a group of ranks does not have."""
    option = f"--tensor-parallel-size {config.tensor_parallel_size}"
    if config.quantization != "none":
        raise ModelRefusedError(f"{option} does not support --quantization {config.quantization}")
    if config.runner not in ("auto", "plain"):
        raise ModelRefusedError(f"{option} does not support --runner {config.runner}; each rank runs plain")
    if config.cache not in ("auto", "paged"):
        raise ModelRefusedError(f"{option} does not support --cache {config.cache}; each rank has a paged one")
    if config.head is not None:
        raise ModelRefusedError(f"{option} does not support --head")
    if config.device not in ("auto", "cpu", "cuda"):
        raise ModelRefusedError(f"{option} does not support --device {config.device}: each rank has a GPU of its own")
    if config.device == "cpu" and torch.cuda.is_available():
        raise ModelRefusedError(f"{option} with --device cpu needs CUDA_VISIBLE_DEVICES to be empty: torch sees a GPU")
