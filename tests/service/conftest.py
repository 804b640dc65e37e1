"""Services of tiny models, several in one process."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread_each() -> None:
    """Tiny products gain nothing from more threads, and the threads of several engines get in each other's way."""
    torch.set_num_threads(1)
