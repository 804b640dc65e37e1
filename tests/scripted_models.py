"""Models that write what a test says: where the prompt ends decides the text, token by token."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from coordinator.requests.tokenizer import BYTE_OF_LETTER
from tests.tiny_models import NO_TOKENS

END = "<|end|>"
LETTERS = {byte: letter for letter, byte in BYTE_OF_LETTER.items()}
WIDTH = 512
"""Above the number of tokens: each has a direction of its own."""
TEMPLATE = (
    "{% for m in messages %}{{ m.reasoning_content or '' }}{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ opening }}{% endif %}"
)
"""A conversation ends with what the variable `opening` says."""


def make_scripted_model(
    folder: Path,
    scripts: Mapping[str, Sequence[str]],
    special: Sequence[str] = (),
    added: Sequence[str] = (),
    template: str = TEMPLATE,
) -> Path:
    """Saves a model that writes a script after a prompt that ends with its key, a single character, and returns its
    folder. No two scripts may share a token, except for END. The `special` tokens are special ones, the `added` ones
    are added tokens that are not. What no script says is equally likely, so that END, the first token, is taken where
    it may be, and then one of these."""
    tokenizer = scripted_tokenizer(scripts, special, added)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END).save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(template)
    ids, after = tokenizer.get_vocab(), dict[int, int]()
    for key, script in scripts.items():
        path = [ids[text] if text in (END, *special, *added) else ids[_spelled(text)] for text in (key, *script)]
        for token, following, text in zip(path, path[1:], script, strict=False):
            assert after.setdefault(token, following) == following, f"two scripts share the token before {text!r}"
    _save_model(folder, after, len(ids))
    return folder


def scripted_tokenizer(
    scripts: Mapping[str, Sequence[str]], special: Sequence[str] = (), added: Sequence[str] = ()
) -> Tokenizer:
    """A token for END, for each special and added text, for each byte, and for each text of the scripts, which no other
    text is encoded with."""
    texts = [END, *special, *added, *LETTERS.values()]
    texts += sorted({_spelled(text) for script in scripts.values() for text in script} - set(texts))
    tokenizer = Tokenizer(BPE(vocab={text: token for token, text in enumerate(texts)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in (END, *special)])
    tokenizer.add_tokens([AddedToken(text, special=False) for text in added])
    return tokenizer


def _spelled(text: str) -> str:
    return "".join(LETTERS[byte] for byte in text.encode())


def _save_model(folder: Path, after: Mapping[int, int], count: int) -> None:
    """Its one layer adds nothing, so that the next token depends on the last one alone."""
    shape = {"hidden_size": WIDTH, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 8}
    config = hf.LlamaConfig(**{**NO_TOKENS, **shape, "vocab_size": count, "eos_token_id": 0})
    config.max_position_embeddings = 2048
    model = hf.LlamaForCausalLM(config)
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(torch.eye(count, WIDTH))
        model.lm_head.weight.zero_()
        for token, following in after.items():
            model.lm_head.weight[following, token] = 1.0
        layers: Any = model.model.layers
        for layer in layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
    model.save_pretrained(folder)


def chat_body(opening: str, **others: Any) -> dict[str, Any]:
    """A greedy request whose prompt ends with `opening`."""
    return {
        "messages": [{"role": "user", "content": "Hi "}],
        "chat_template_kwargs": {"opening": opening},
        "temperature": 0,
        "max_tokens": 60,
        **others,
    }
