"""`python -m models.eagle`: the command."""

import argparse
from pathlib import Path

import models.eagle
from models.eagle import steps
from models.smollm2.training import Plan


def main() -> None:
    parser = argparse.ArgumentParser(
        description=models.eagle.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="step", required=True, metavar="STEP")
    train = commands.add_parser("train", help="train the head, or go on with it")
    train.add_argument("--minutes", type=float, default=40.0, help="training time over all runs (default 40)")
    train.add_argument("--lr", type=float, default=3e-3, help="peak learning rate (default 0.003)")
    train.add_argument("--rows", type=int, default=10, help="conversations of a step (default 10)")
    train.add_argument("--begun", type=Path, metavar="FOLDER", help="head to begin with, if there is no checkpoint")
    publish = commands.add_parser("publish", help="write the last checkpoint as a head")
    measure = commands.add_parser("measure", help="held-out figures of a head")
    for command in (publish, measure):
        command.add_argument("--head", type=Path, default=steps.PUBLISHED, metavar="FOLDER")
    run(parser.parse_args())


def run(arguments: argparse.Namespace) -> None:
    if arguments.step == "train":
        steps.train(plan(arguments), arguments.begun)
    elif arguments.step == "publish":
        steps.publish(arguments.head)
    elif arguments.step == "measure":
        steps.measure_head(arguments.head)


def plan(arguments: argparse.Namespace) -> Plan:
    return Plan(
        minutes=arguments.minutes,
        learning_rate=arguments.lr,
        rows=arguments.rows,
        check_minutes=8,
        overlap=0.7,
        heat=0.5,
    )


if __name__ == "__main__":
    main()
