"""The `specpair` command as a process, also as `python -m command`."""

import os


def run() -> None:
    """Runs the command that the arguments name, and ends the process."""
    # gRPC would log failed connections; errors come as statuses. It reads the variable when it is imported.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from command.main import app

    app(prog_name="specpair")


if __name__ == "__main__":
    run()
