"""The policy and its tokenizer: the embedded tiny one, or one from Hugging Face or disk."""
