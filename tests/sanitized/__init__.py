"""The compiled functions under the sanitizers of GCC."""
