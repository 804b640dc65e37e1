"""`python -m models.expand`: the command."""

import argparse
from dataclasses import asdict, replace
from pathlib import Path

from transformers.utils import logging

import models.expand
from models.expand.comparison import DTYPES, TOLERANCE
from models.expand.folder import read_config
from models.expand.recipe import BUNDLED, WORK, expansion_name, make
from models.expand.shape import PRESETS, ExpansionError, Shape, shape_of


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=models.expand.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = ", ".join(f"{name}: {s.num_hidden_layers} layers of {s.hidden_size}" for name, s in PRESETS.items())
    parser.add_argument("--size", choices=list(PRESETS), help=f"a shape to begin with ({sizes}); else the source's")
    parser.add_argument("--layers", type=int, dest="num_hidden_layers", metavar="N", help="how many instead")
    parser.add_argument("--hidden-size", type=int, metavar="N", help="width of the residual stream")
    parser.add_argument("--intermediate-size", type=int, metavar="N", help="feed-forward units of a layer")
    parser.add_argument("--heads", type=int, dest="num_attention_heads", metavar="N", help="query heads")
    parser.add_argument("--kv-heads", type=int, dest="num_key_value_heads", metavar="N", help="key-value heads")
    parser.add_argument("--vocab-size", type=int, metavar="N", help="tokens; the new ones have probability zero")
    parser.add_argument(
        "--source", type=Path, default=BUNDLED / "target", metavar="FOLDER", help="default: the bundled target"
    )
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="default: models/work/SOURCE-SIZE")
    parser.add_argument("--dtype", choices=list(DTYPES), default="float32", help="of the weights (default float32)")
    parser.add_argument("--seed", type=int, default=0, help="of the new random weights (default 0)")
    arguments = parser.parse_args()
    if not arguments.size and not arguments.output:
        parser.error("say --size, or --output for a shape of your own")
    return arguments


def wanted_shape(arguments: argparse.Namespace) -> Shape:
    """The preset or the source's own shape, with what the options change."""
    begun = PRESETS[arguments.size] if arguments.size else shape_of(read_config(arguments.source))
    given = {name: getattr(arguments, name) for name in asdict(begun)}
    return replace(begun, **{name: size for name, size in given.items() if size is not None})


def main() -> None:
    arguments = parse_arguments()
    logging.disable_progress_bar()
    try:
        shape = wanted_shape(arguments)
        output = arguments.output or WORK / expansion_name(
            arguments.source, arguments.size, arguments.dtype, arguments.vocab_size
        )
        recipe = make(arguments.source, shape, output, dtype=arguments.dtype, seed=arguments.seed)
    except ExpansionError as error:
        raise SystemExit(f"error: {error}") from error
    print(
        f"{output}: {recipe['parameters'] / 1e6:.1f} M parameters, {recipe['bytes'] / 1e9:.2f} GB in {recipe['dtype']};"
        f" logits differ by at most {recipe['largest_logit_difference']:.1e} (tolerance {TOLERANCE:g})"
    )


if __name__ == "__main__":
    main()
