"""Checks that draft and target have the same vocabulary. A draft may translate where they have not."""

from coordinator.requests.tokenizer import Tokenizer
from specpair.errors import VocabularyMismatchError
from specpair.model_info import ModelInfo


def check_vocabularies(
    draft: Tokenizer | None, target: Tokenizer | None, draft_info: ModelInfo, target_info: ModelInfo
) -> None:
    """Raises VocabularyMismatchError unless every token id has the same string in both tokenizers.

    Logits padded to different widths are allowed. Without both tokenizers only the widths are compared. A draft without
    a model has no vocabulary and fits any.
    """
    if has_no_model(draft_info):
        return
    if draft is not None and target is not None:
        _compare_strings(draft.vocabulary(), target.vocabulary())
    elif draft_info.vocab_size != target_info.vocab_size:
        raise VocabularyMismatchError(
            f"the draft has {draft_info.vocab_size} token ids, the target {target_info.vocab_size}",
            draft_vocab_size=draft_info.vocab_size,
            target_vocab_size=target_info.vocab_size,
        )


def has_no_model(draft_info: ModelInfo) -> bool:
    """Whether the draft proposes from the tokens alone, without a model."""
    return draft_info.vocab_size == 0


def check_encoders(draft_info: ModelInfo, target_info: ModelInfo) -> None:
    """Raises VocabularyMismatchError unless both have an encoder, or none, or the draft has no model."""
    if has_no_model(draft_info):
        return
    names = ["a decoder alone" if info.encoder_decoder is None else "an encoder" for info in (draft_info, target_info)]
    if names[0] != names[1]:
        raise VocabularyMismatchError(
            f"the draft has {names[0]}, the target has {names[1]}: they read different things"
        )


def _compare_strings(draft: dict[int, str], target: dict[int, str]) -> None:
    if draft == target:
        return
    first = min(token_id for token_id in draft.keys() | target.keys() if draft.get(token_id) != target.get(token_id))
    draft_token, target_token = (_describe(tokens.get(first)) for tokens in (draft, target))
    raise VocabularyMismatchError(
        f"token {first} is {draft_token} in the draft, but {target_token} in the target",
        token_id=first,
        draft_token=draft.get(first, ""),
        target_token=target.get(first, ""),
    )


def _describe(token: str | None) -> str:
    return "missing" if token is None else repr(token)
