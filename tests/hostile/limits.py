"""Settings of the services under attack; hostile messages aim at these limits and just beyond them."""

VOCABULARY = 4096
MAX_LENGTH = 48
"""Of a sequence; short, so that a request that turns out to be legal is soon served."""
MAX_PROPOSED = 8
MOST_SEQUENCES = 256
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_ID_LENGTH = 128
