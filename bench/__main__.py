"""`python -m bench`: the bundled pair at K = 0 and above, T = 0 and T = 1; a table, then one JSON line."""

import argparse

from bench.local import measured_locally
from bench.pair import Setting, measure, report
from bench.prompts import held_out_prompts
from bench.report import publish
from specpair.cli.bundled import BUNDLED

FORMATS = {
    "temperature": "{:g}",
    "k": "{:.0f}",
    "acceptance_rate": "{:.3f}",
    "first_token_acceptance": "{:.3f}",
    "tokens_per_round": "{:.2f}",
    "tokens_per_second": "{:.1f}",
    "ratio_to_plain": "{:.2f}",
    "draft_ms": "{:.2f}",
    "verify_ms": "{:.2f}",
    "network_ms": "{:.2f}",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--prompts", type=int, default=8, help="held-out files to go on from (default 8)")
    parser.add_argument("--max-tokens", type=int, default=96, help="tokens to generate for each (default 96)")
    parser.add_argument("--k", type=int, nargs="+", default=[1, 2, 3, 5, 8], help="tokens per proposal; 0 is added")
    parser.add_argument("--target", default=BUNDLED, help="folder or Hugging Face id (default bundled)")
    parser.add_argument("--draft", default=BUNDLED, help="folder or Hugging Face id (default bundled)")
    arguments = parser.parse_args()
    settings = [
        Setting(temperature=temperature, num_speculative_tokens=k)
        for temperature in (0.0, 1.0)
        for k in dict.fromkeys([0, *arguments.k])
    ]
    prompts = held_out_prompts(arguments.prompts)
    tallies = measured_locally(
        lambda stub: measure(stub, settings, prompts, arguments.max_tokens), arguments.target, arguments.draft
    )
    publish("pair", "bundled pair, batch 1; times are ms a round", FORMATS, list(report(tallies)))


if __name__ == "__main__":
    main()
