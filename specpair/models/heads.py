"""Finds out of which kind a head is, and loads it."""

from pathlib import Path

from specpair.engine_config import EngineConfig
from specpair.errors import ModelRefusedError
from specpair.model_info import NOT_QUANTISED
from specpair.models.drafting_runner import TargetHead
from specpair.models.eagle import AUTO, Eagle
from specpair.models.eagle_checkpoint import read_eagle
from specpair.models.head_files import read_config
from specpair.models.loading import LoadedModel
from specpair.models.lookahead_head import LookaheadHead
from specpair.models.medusa_head import MedusaHead
from specpair.models.mtp_head import MtpHead

OWN_LAYERS = "mtp"
"""In place of a folder: the layers for multi-token prediction in the target's own checkpoint."""


def load_head(config: EngineConfig, loaded: LoadedModel) -> TargetHead | None:
    """The head that the configuration names, for its target; None without one. Raises ModelRefusedError if it is of no
    known kind, or does not fit."""
    wanted = (
        "" if config.head_quantization in (AUTO, NOT_QUANTISED) else f"--head-quantization {config.head_quantization}"
    )
    if config.head is None:
        if wanted:
            raise ModelRefusedError(f"{wanted}: the target has no head; give it one with --head")
        return None
    folder = Path(config.head)
    fields = {} if config.head == OWN_LAYERS else read_config(folder)
    if "speculators_model_type" in fields:
        return Eagle(read_eagle(folder, loaded), loaded, config.head_quantization)
    if wanted:
        raise ModelRefusedError(f"{wanted} is for EAGLE-3 heads, and {config.head} is none")
    if config.head == OWN_LAYERS:
        return MtpHead(loaded)
    if "medusa_num_heads" in fields:
        return MedusaHead(folder, fields, loaded)
    if "lookahead_count" in fields:
        return LookaheadHead(folder, fields, loaded)
    raise ModelRefusedError(f"{folder} holds no head of a known kind: its model_type is {fields.get('model_type')!r}")
