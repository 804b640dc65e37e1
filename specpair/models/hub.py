"""Whether the hub of a model can be reached, found out once and soon.

huggingface_hub asks six times for each file, with pauses: most of a minute until a model that is nowhere is refused.
Here it is asked once, and waited for as long as its variable HF_HUB_ETAG_TIMEOUT says: 10 seconds by default.
"""

from pathlib import Path

from huggingface_hub import get_hf_file_metadata, hf_hub_url, is_offline_mode, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from specpair.errors import ModelRefusedError
from specpair.models.refusals import first_line

FILE = "config.json"
"""What every model has."""
NOWHERE = "is neither a model folder nor a GGUF file nor a reachable Hugging Face id"


def refuse_unreachable(model: str) -> None:
    """Raises ModelRefusedError if a model has to come from a hub that does not answer. If it answers that it has none,
    whoever loads the model says so."""
    try:
        if Path(model).exists() or is_offline_mode() or isinstance(try_to_load_from_cache(model, FILE), str):
            return
        get_hf_file_metadata(hf_hub_url(model, FILE))
    except (HfHubHTTPError, HFValidationError):
        return
    except Exception as error:  # those of the library's own library for HTTP, which changes
        raise ModelRefusedError(f"{model} {NOWHERE}: {first_line(error)}") from error
