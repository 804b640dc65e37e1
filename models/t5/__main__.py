"""Trains the pair: `python -m models.t5 [target | draft]`, in minutes on one thread."""

import argparse
from pathlib import Path

from models.t5.training import RECIPES, train

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to train; both if not given")
    parser.add_argument("--folder", type=Path, default=HERE, help="where to save them; default: this folder")
    arguments = parser.parse_args()
    for name in arguments.names or RECIPES:
        loss = train(RECIPES[name], arguments.folder / name)
        print(f"{name}: {loss:.3f} nats a token on held-out sentences")


if __name__ == "__main__":
    main()
