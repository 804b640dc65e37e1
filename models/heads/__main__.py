"""`python -m models.heads`: the command."""

import argparse
from pathlib import Path

import models.heads
from models.heads import lookahead, measure, medusa
from models.heads.text import BUNDLED


def main() -> None:
    parser = argparse.ArgumentParser(
        description=models.heads.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    for kind, minutes in (("medusa", 5.0), ("pass", 4.0)):
        command = commands.add_parser(kind, help="train from the start")
        command.add_argument("--minutes", type=float, default=minutes, help=f"processor time (default {minutes:g})")
        command.add_argument("--head", type=Path, default=BUNDLED / kind, metavar="FOLDER")
    commands.add_parser("measure", help="held-out acceptance")
    arguments = parser.parse_args()
    if arguments.kind == "measure":
        measure.run()
    else:
        {"medusa": medusa, "pass": lookahead}[arguments.kind].train(arguments.minutes, arguments.head)


if __name__ == "__main__":
    main()
