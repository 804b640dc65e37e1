"""The `specpair` command as a process, also as `python -m command`."""

import os

from command.interrupts import end_on_interrupt


def run() -> None:
    """Runs the command that the arguments name, and ends the process."""
    end_on_interrupt()
    # gRPC would log failed connections; errors come as statuses. It reads the variable when it is imported.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from command.failures import end_unwritten
    from command.main import app

    try:
        app(prog_name="specpair")
    except OSError as error:  # caught here, and not in each command, since the help is output, too
        end_unwritten(error)


if __name__ == "__main__":
    run()
