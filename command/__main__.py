"""The `specpair` command as a process, also as `python -m command`."""

import os


def run() -> None:
    """Runs the command of the arguments, and ends the process."""
    # gRPC would write lines of its own about connections that fail; errors come as statuses. It looks when imported.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from command.main import app

    app(prog_name="specpair")


if __name__ == "__main__":
    run()
