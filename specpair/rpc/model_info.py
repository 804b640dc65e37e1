"""What GetModelInfo and GetTokenizer carry; see `specpair.model_info`, which the engine shares."""

from specpair.model_info import ModelInfo, TokenizerFiles

__all__ = ["ModelInfo", "TokenizerFiles"]
