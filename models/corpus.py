"""The training text: the Python standard library's own sources, split by whole files.

Every Python installation includes this text, so anybody can train the bundled pair again without a download.
"""

import hashlib
import sysconfig
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END_OF_TEXT = "<|endoftext|>"
VALIDATION_SHARE = 0.03
# These files are tables of code points, not programs: the model would learn columns of hexadecimal numbers.
LEFT_OUT = {"encodings", "site-packages", "__pycache__"}
# A conversation is written as comments, the usual form of prose in source files.
CHAT_TEMPLATE = (
    "{% for message in messages %}# {{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}# assistant:{% endif %}"
)


def source_files() -> list[Path]:
    """Every `.py` file of the running interpreter's standard library, in a stable order."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = (path for path in root.rglob("*.py") if not LEFT_OUT.intersection(path.relative_to(root).parts))
    return sorted(files)


def read_texts() -> tuple[list[str], list[str]]:
    """Training and validation texts; a file belongs to one side by the hash of its path."""
    root = Path(sysconfig.get_paths()["stdlib"])
    sides: tuple[list[str], list[str]] = ([], [])
    for path in source_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # a few test files are written in other encodings on purpose
            continue
        name = path.relative_to(root).as_posix()
        draw = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32
        sides[draw < VALIDATION_SHARE].append(text)
    return sides


def train_tokenizer(texts: list[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer: every string round-trips, no token is unknown."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def encode(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> np.ndarray:
    """All texts as one array of token ids `[tokens]`; each text begins with the end-of-text token."""
    end = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    batch = tokenizer.backend_tokenizer.encode_batch(texts)
    return np.concatenate([np.array([end, *encoding.ids], dtype=np.uint16) for encoding in batch])
