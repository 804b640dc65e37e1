"""The target service: verifies proposals with the model whose text is wanted."""
