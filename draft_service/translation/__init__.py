"""Between the tokens of a draft and those of a target with another vocabulary."""
