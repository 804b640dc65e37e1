"""The pair's tokenizer: a token for each word of the source and each syllable of the translation."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from models.t5.task import vocabulary

PAD, END_OF_TEXT, UNKNOWN = "<pad>", "</s>", "<unk>"


def make_tokenizer() -> PreTrainedTokenizerFast:
    """As T5's, it ends what the encoder reads with </s>, and has <pad> as its first token."""
    ids = {token: i for i, token in enumerate([PAD, END_OF_TEXT, UNKNOWN, *vocabulary()])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))  # pyright: ignore[reportCallIssue]
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = decoders.WordPiece(prefix="##")  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.post_processor = processors.TemplateProcessing(  # pyright: ignore[reportAttributeAccessIssue]
        single=f"$A {END_OF_TEXT}", special_tokens=[(END_OF_TEXT, ids[END_OF_TEXT])]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END_OF_TEXT, unk_token=UNKNOWN)
