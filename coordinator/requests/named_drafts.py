"""The drafts that a request is for, by name."""

from collections.abc import Mapping, Sequence

from coordinator.config import CoordinatorConfig
from coordinator.draft_names import LOCAL_DRAFTERS, MAX_DRAFTS
from specpair.errors import InvalidFieldError, NotSupportedError
from specpair.model_info import ModelInfo
from specpair.options import FROM_TEXT, Merge, check_count
from specpair.rpc.messages import merge_from_proto
from specpair.v1 import coordinator_service_pb2 as pb


def read_draft_names(
    message: pb.GenerateTokensRequest,
    config: CoordinatorConfig,
    target: ModelInfo,
    infos: Mapping[str, ModelInfo | None],
    lenience: float,
) -> tuple[str, ...]:
    """The names; several are merged. Empty for the server's first draft service alone.

    Raises InvalidFieldError, or NotSupportedError if the target cannot judge what the request names.
    """
    names = _named_or_merged(message, config, target, infos, lenience)
    if names or message.drafter or config.drafts.addresses:
        return names
    return config.drafts.names[:1]  # without a service the text proposes


def _named_or_merged(
    message: pb.GenerateTokensRequest,
    config: CoordinatorConfig,
    target: ModelInfo,
    infos: Mapping[str, ModelInfo | None],
    lenience: float,
) -> tuple[str, ...]:
    """The names that the request has, or those of all drafts if they are to be merged."""
    names, mode = tuple(message.drafts), merge_from_proto(message.merge)
    check_count("drafts", len(names), MAX_DRAFTS)
    for index, name in enumerate(names):
        _check_name(f"drafts[{index}]", name, names[:index], infos)
    if mode is Merge.NONE and len(names) > 1:
        raise InvalidFieldError("merge", f"is none; `drafts` names {len(names)}, of which none proposes alone")
    if mode is Merge.TREE and not names:
        names = config.drafts.names
        if len(names) < 2:
            raise InvalidFieldError("merge", "is tree; the server has no two drafts, so `drafts` must name several")
    is_wanted = mode is not None or bool(names)
    if not is_wanted and config.merge is Merge.TREE and not message.drafter:
        names = config.drafts.names
    if len(names) < 2 or (target.runs_trees and lenience == 1.0):
        return names
    if not is_wanted:
        return ()
    problem = "lenience judges chains alone" if lenience < 1.0 else "the target does not verify trees of tokens"
    raise NotSupportedError(f"drafts: {problem}, and several drafts make a tree")


def _check_name(field: str, name: str, before: Sequence[str], infos: Mapping[str, ModelInfo | None]) -> None:
    """Raises InvalidFieldError unless a draft has this name, or may have the drafter of this name."""
    if name in before:
        raise InvalidFieldError(field, f"names {name} twice")
    if name in infos:
        return
    known = [*FROM_TEXT, *(drafter for info in infos.values() if info is not None for drafter in info.drafters)]
    is_away = any(info is None for info in infos.values())
    if name not in LOCAL_DRAFTERS or not (name in known or is_away):
        available = [*infos, *dict.fromkeys(drafter for drafter in known if drafter in LOCAL_DRAFTERS)]
        raise InvalidFieldError(field, f"is {name[:64]!r}; there are {', '.join(available) or 'none'}")
