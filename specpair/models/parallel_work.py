"""Which thread shares its operators among CPU threads: of a service only one, the device thread.

OpenMP keeps a pool of threads for each thread that starts a parallel region. With two pools libgomp counts more threads
than processors and no longer lets threads spin for long while they wait, which doubled the time of a pass
(docs/decisions/engine.md).
"""

import torch


def claim_parallel_work(threads: int) -> None:
    """Lets the calling thread share an operator among `threads` CPU threads."""
    torch.set_num_threads(threads)
    torch.get_num_threads()  # a thread's first question sets its number to the one set last by any thread


def leave_parallel_work() -> None:
    """Lets the calling thread, and threads that have not used torch yet, compute alone."""
    claim_parallel_work(1)
