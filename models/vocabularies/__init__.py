"""Drafts for the bundled target with vocabularies of their own."""
