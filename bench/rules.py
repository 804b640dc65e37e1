"""`python -m bench.rules`: acceptance of the bundled pair by rule and temperature; a table, then one JSON line.

Prompts are the beginnings of held-out files, and seeds are fixed: the same weights give the same figures but for
near-ties.
"""

import argparse

from bench.local import measured_locally
from bench.pair import Setting, measure
from bench.prompts import held_out_prompts
from bench.report import publish
from specpair.options import Rule

TEMPERATURES = (0.0, 0.5, 1.0)
FORMATS = {
    "rule": "{}",
    "temperature": "{:g}",
    "k": "{:.0f}",
    "acceptance_rate": "{:.3f}",
    "first_token_acceptance": "{:.3f}",
    "tokens_per_round": "{:.2f}",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.rules", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=12, help="held-out files to go on from (default 12)")
    parser.add_argument("--max-tokens", type=int, default=96, help="tokens to generate for each (default 96)")
    parser.add_argument("--k", type=int, default=5, help="tokens per proposal (default 5)")
    arguments = parser.parse_args()
    settings = [
        Setting(temperature=temperature, num_speculative_tokens=arguments.k, rule=rule)
        for rule in Rule
        for temperature in TEMPERATURES
    ]
    prompts = held_out_prompts(arguments.prompts)
    tallies = measured_locally(lambda stub: measure(stub, settings, prompts, arguments.max_tokens))
    rows = [
        {"rule": setting.rule.value, "temperature": setting.temperature, "k": arguments.k, **tally.acceptance()}
        for setting, tally in tallies.items()
    ]
    publish("rules", f"acceptance of the bundled pair at K = {arguments.k}", FORMATS, rows)


if __name__ == "__main__":
    main()
