"""The outputs of a request, each from its first to its last token."""
