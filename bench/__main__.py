"""`python -m bench`: the bundled pair at K = 0 and above, T = 0 and T = 1; a table, then one JSON line."""

import argparse
import asyncio
import json
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.machine import describe_machine
from bench.pair import Setting, measure, report
from bench.prompts import held_out_prompts
from specpair.cli.bundled import BUNDLED, resolve_model
from specpair.cli.connection import coordinator_at
from specpair.cli.local_pair import LOOPBACK, announce, free_port, ignore_line, plan_service, run_children, unless_dead

RESULTS = Path(__file__).parent / "results"
FORMATS = {
    "temperature": "{:g}",
    "k": "{:.0f}",
    "acceptance_rate": "{:.3f}",
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
    rows = asyncio.run(run(arguments, settings))
    print_table(rows)
    result = {"machine": describe_machine(), "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "rows": rows}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "pair.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


async def run(arguments: argparse.Namespace, settings: list[Setting]) -> list[dict[str, float]]:
    """Starts the three processes, measures, stops them."""
    models = {"draft": arguments.draft, "target": arguments.target}
    plans = [
        plan_service(name, {"--model": resolve_model(models[name], name)}, host=LOOPBACK, port=free_port())
        for name in ("draft", "target")
    ]
    addresses = {f"--{plan.name}": plan.address for plan in plans}
    plans.append(plan_service("coordinator", dict(addresses), host=LOOPBACK, port=free_port()))
    prompts = held_out_prompts(arguments.prompts)
    rows: list[dict[str, float]] = []

    async def measure_all() -> None:
        async with coordinator_at(plans[-1].address) as stub:
            rows.extend(report(await measure(stub, settings, prompts, arguments.max_tokens)))

    async with run_children(plans, ignore_line) as children:
        await unless_dead(children, announce(children, Console(stderr=True)))
        await unless_dead(children, measure_all())
    return rows


def print_table(rows: list[dict[str, float]]) -> None:
    table = Table(title="bundled pair, batch 1; times are ms a round")
    for name in FORMATS:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(form.format(row[name]) for name, form in FORMATS.items()))
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
