"""`python -m models.smollm2`: the command."""

import argparse
from collections.abc import Callable
from pathlib import Path

import models.smollm2
from models.smollm2 import steps
from models.smollm2.prompts import TEMPERATURE_SHARES, TEMPERATURES
from models.smollm2.training import Plan


def main() -> None:
    parser = argparse.ArgumentParser(
        description=models.smollm2.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="step", required=True, metavar="STEP")
    generate = commands.add_parser("generate", help="the target's conversations, until stopped or enough")
    generate.add_argument("--slots", type=int, default=96, help="conversations at once (default 96)")
    generate.add_argument("--first", type=int, default=0, help="number of the first (default 0)")
    generate.add_argument("--most", type=int, default=40_000, help="the number before which it ends (default 40000)")
    generate.add_argument("--part", type=int, default=0, help="which of the processes beside each other this is")
    generate.add_argument("--parts", type=int, default=1, help="how many there are, with one thread each (default 1)")
    generate.add_argument(
        "--shares",
        type=numbers(float),
        default=TEMPERATURE_SHARES,
        metavar="A,B,C",
        help=f"of answers at T = {TEMPERATURES}",
    )
    hold_out = commands.add_parser("hold-out", help="the target's answers to the held-out prompts")
    hold_out.add_argument("--slots", type=int, default=60, help="conversations at once (default 60)")
    vocabulary = commands.add_parser("vocabulary", help="choose the draft's output tokens")
    vocabulary.add_argument("--size", type=int, default=8192, help="how many (default 8192)")
    train = commands.add_parser("train", help="train the draft, or go on with it")
    train.add_argument("--minutes", type=float, default=240.0, help="training time over all runs (default 240)")
    train.add_argument("--lr", type=float, default=1e-2, help="peak learning rate (default 0.01)")
    train.add_argument("--rows", type=int, default=16, help="conversations of a step (default 16)")
    train.add_argument("--overlap", type=float, default=0.7, help="share of the overlap in the later loss")
    train.add_argument("--heat", type=float, default=0.5, help="temperature of that overlap in cold answers")
    for command in (generate, hold_out):
        command.add_argument(
            "--features",
            type=numbers(int),
            default=[],
            metavar="I,J",
            help="also keep what enters these layers, for a head",
        )
    for command in (train, commands.add_parser("publish", help="write the last checkpoint as a draft")):
        command.add_argument(
            "--layers", type=numbers(int), default=[0, 1, 2], metavar="I,J", help="begun with (default 0,1,2)"
        )
        command.add_argument("--output", type=Path, default=steps.PUBLISHED, metavar="FOLDER")
    measure = commands.add_parser("measure", help="held-out figures of a draft")
    measure.add_argument("--draft", type=Path, default=steps.PUBLISHED, metavar="FOLDER")
    run(parser.parse_args())


def numbers(kind: type) -> Callable[[str], list]:
    return lambda text: [kind(part) for part in text.split(",")]


def run(arguments: argparse.Namespace) -> None:
    if arguments.step == "generate":
        wanted = range(arguments.first, arguments.most)
        part = (arguments.part, arguments.parts)
        steps.generate(arguments.slots, wanted, part, arguments.shares, arguments.features)
    elif arguments.step == "hold-out":
        steps.hold_out(arguments.slots, arguments.features)
    elif arguments.step == "vocabulary":
        steps.vocabulary(arguments.size)
    elif arguments.step == "train":
        steps.train(arguments.layers, plan(arguments), arguments.output)
    elif arguments.step == "publish":
        steps.publish(arguments.layers, arguments.output)
    elif arguments.step == "measure":
        steps.measure_draft(arguments.draft)


def plan(arguments: argparse.Namespace) -> Plan:
    return Plan(
        minutes=arguments.minutes,
        learning_rate=arguments.lr,
        rows=arguments.rows,
        check_minutes=8,
        overlap=arguments.overlap,
        heat=arguments.heat,
    )


if __name__ == "__main__":
    main()
