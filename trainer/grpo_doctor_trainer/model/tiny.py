"""The embedded model: a random Qwen2 of a few hundred thousand weights and a byte-level tokenizer.

Both are made here, in milliseconds and the same each time: no download, no file.
"""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

_MODEL_SEED = 20_240_917
# Larger than Qwen2's 0.02: at this width the prompt would hardly change the first logits, and the
# policy would settle on one answer for all prompts before it has learned to read them.
_WEIGHT_DEVIATION = 0.05
_PAD, _END = "<|pad|>", "<|end|>"
_SPECIAL_TOKENS = (_PAD, _END, "<|system|>", "<|user|>", "<|assistant|>")
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def tiny_tokenizer() -> Any:
    """Makes a tokenizer with one token per byte, a chat template, and end and padding tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: number for number, symbol in enumerate(alphabet)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True) for token in _SPECIAL_TOKENS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token=_PAD, eos_token=_END, padding_side="left"
    )
    tokenizer.chat_template = _CHAT_TEMPLATE
    return tokenizer


def tiny_model(tokenizer: Any, width: int = 128) -> Any:
    """Makes the random model, in float32; the global random state is left as it was."""
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        initializer_range=_WEIGHT_DEVIATION,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_MODEL_SEED)
        return Qwen2ForCausalLM(config)
