"""The `specpair` command."""

from command.interrupts import end_on_interrupt, is_starting

if is_starting():  # what follows takes as long as Python itself takes to begin
    end_on_interrupt()

import specpair  # noqa: F401 - before gRPC
