"""What a model *is*: files, tokenizer, chat template, where to get it."""
