"""`specpair up`: the whole pair on this machine, three processes, one terminal."""

import asyncio
import signal
from typing import Annotated

import typer
from rich.console import Console

from command import draft_options as drafting
from command import options as opt
from command import protection
from command.bundled import BUNDLED, resolve_model
from command.failures import INTERRUPTED, WRONG_USE, CommandError, friendly
from command.generate import run_generation
from command.gpu_shares import gpu_shares
from command.local_pair import (
    GRACE_SECONDS,
    LOOPBACK,
    ServicePlan,
    announce,
    free_port,
    ignore_line,
    line_printer,
    plan_service,
    reachable_address,
    run_children,
    unless_dead,
)
from command.request import completion_request
from specpair.options import Drafter
from specpair.security.settings import check_exposure
from specpair.v1 import coordinator_service_pb2 as pb

METRICS_PORTS = {"draft": opt.DRAFT_METRICS_PORT, "target": opt.TARGET_METRICS_PORT}
USUAL_PORTS = {"draft": opt.DRAFT_PORT, "target": opt.TARGET_PORT, "coordinator": opt.COORDINATOR_PORT}


@friendly
def up(
    draft: Annotated[
        str | None,
        typer.Option(
            "--draft",
            envvar="SPECPAIR_DRAFT_MODEL",
            help="Draft: a folder, a Hugging Face id, bundled. Default: bundled for a drafter that needs a model, none "
            "for others.",
        ),
    ] = None,
    target: Annotated[
        str,
        typer.Option("--target", envvar="SPECPAIR_TARGET_MODEL", help="Target: a folder, a Hugging Face id, bundled."),
    ] = BUNDLED,
    drafter: drafting.DraftDrafterOption = Drafter.MODEL,
    table: drafting.TableOption = None,
    num_speculative_tokens: opt.NumSpeculativeTokensOption = None,
    dtype: opt.DtypeOption = "auto",
    draft_device: Annotated[
        str, typer.Option("--draft-device", help="Device of the draft.", rich_help_panel=opt.MODEL)
    ] = "auto",
    target_device: Annotated[
        str, typer.Option("--target-device", help="Device of the target.", rich_help_panel=opt.MODEL)
    ] = "auto",
    gpu_memory_utilization: opt.GpuMemoryUtilizationOption = 0.9,
    max_model_len: opt.MaxModelLenOption = None,
    max_num_seqs: opt.MaxNumSeqsOption = 64,
    deterministic: opt.DeterministicOption = False,
    host: opt.HostOption = LOOPBACK,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", help="Port of the coordinator; 50050, or a free one with --prompt.", rich_help_panel=opt.LISTENING
        ),
    ] = None,
    draft_port: Annotated[
        int | None, typer.Option("--draft-port", help="Port of the draft; 50051.", rich_help_panel=opt.LISTENING)
    ] = None,
    target_port: Annotated[
        int | None, typer.Option("--target-port", help="Port of the target; 50052.", rich_help_panel=opt.LISTENING)
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option(
            "--http-port",
            envvar="SPECPAIR_HTTP_PORT",
            help="Port of the OpenAI-compatible API, the page and /metrics; 8000, or none with --prompt. 0 switches "
            "them off.",
            rich_help_panel=opt.LISTENING,
        ),
    ] = None,
    http_allowed_hosts: opt.HttpAllowedHostsOption = "",
    draft_metrics_port: Annotated[
        int | None,
        typer.Option(
            "--draft-metrics-port",
            min=0,
            max=65535,
            help="Port of the draft's /metrics; 9051, or none with --prompt. 0 switches it off.",
            rich_help_panel=opt.LISTENING,
        ),
    ] = None,
    target_metrics_port: Annotated[
        int | None,
        typer.Option(
            "--target-metrics-port",
            min=0,
            max=65535,
            help="Port of the target's /metrics; 9052, or none with --prompt. 0 switches it off.",
            rich_help_panel=opt.LISTENING,
        ),
    ] = None,
    tokens_file: protection.TokensFileOption = None,
    insecure: protection.InsecureOption = False,
    grace_seconds: opt.GraceSecondsOption = GRACE_SECONDS,
    log_level: opt.LogLevelOption = "info",
    quiet: Annotated[bool, typer.Option("--quiet", help="Leave the services' logs out.")] = False,
    prompt: Annotated[
        str | None, typer.Option("--prompt", help="Generate one completion of this text, then stop everything.")
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", help="Most tokens of the completion.", rich_help_panel=opt.SAMPLING)
    ] = 128,
    temperature: opt.TemperatureOption = None,
    seed: opt.SeedOption = None,
    no_color: opt.NoColorOption = False,
) -> None:
    """Start draft, target and coordinator on this machine and keep them running until Ctrl-C.

    The coordinator listens on --host, the models on the loopback interface. For other layouts start each
    service with `specpair serve`.
    """
    check_exposure(host, protection.server_security(None, None, None, tokens_file, insecure))
    request = None
    if prompt is not None and tokens_file is not None:
        raise CommandError("--prompt is asked without a token: leave --tokens-file out", WRONG_USE)
    if prompt is not None:
        request = completion_request(prompt, max_tokens=max_tokens, temperature=temperature, seed=seed)
    wanted = {"draft": draft_port, "target": target_port, "coordinator": port}
    ports = {name: _port(name, number, is_once=request is not None) for name, number in wanted.items()}
    shared = {
        "--dtype": dtype,
        "--max-model-len": max_model_len,
        "--max-num-seqs": max_num_seqs,
        "--log-level": log_level,
        "--grace-seconds": grace_seconds,
    }
    proposing = {"--model": drafting.model_to_load(draft, drafter), "--drafter": drafter.value, "--table": table}
    models = {
        "draft": {**proposing, "--device": draft_device, **shared},
        "target": {"--model": resolve_model(target, "target"), "--device": target_device, **shared},
    }
    draft_folder = proposing["--model"]
    shares = gpu_shares(gpu_memory_utilization, None if draft_folder is None else draft_device, target_device)
    for name, share in shares._asdict().items():
        models[name]["--gpu-memory-utilization"] = share
    # The draft's bits change what is accepted, never what a greedy or coupled output says.
    models["target"]["--deterministic"] = deterministic
    for name, number in {"draft": draft_metrics_port, "target": target_metrics_port}.items():
        models[name]["--metrics-port"] = _metrics_port(name, number, is_once=request is not None)
    plans = [plan_service(name, flags, host=LOOPBACK, port=ports[name]) for name, flags in models.items()]
    addresses = {f"--{plan.name}": plan.address for plan in plans}
    length = opt.AUTO if num_speculative_tokens is None else num_speculative_tokens
    if http_port is None:
        http_port = 0 if request is not None else opt.HTTP_PORT
    flags = {**addresses, "--num-speculative-tokens": length, "--http-port": http_port, "--log-level": log_level}
    flags |= {"--grace-seconds": grace_seconds}
    flags |= {"--tokens-file": tokens_file, "--insecure": insecure}
    flags["--http-allowed-hosts"] = http_allowed_hosts or None
    plans.append(plan_service("coordinator", flags, host=host, port=ports["coordinator"]))
    url = f"http://{reachable_address(host, http_port)}" if http_port else None
    console = Console(stderr=True, highlight=False, no_color=no_color or None)
    asyncio.run(_run(plans, console, request, url, grace_seconds=grace_seconds, is_quiet=quiet, is_plain=no_color))


async def _run(
    plans: list[ServicePlan],
    console: Console,
    request: pb.GenerateTokensRequest | None,
    url: str | None,
    *,
    grace_seconds: float,
    is_quiet: bool,
    is_plain: bool,
) -> None:
    """Everything from start to stop, `url` being that of HTTP. A signal ends it in order, wherever it is."""
    on_line = ignore_line if is_quiet or request is not None else line_printer(console)
    address = plans[-1].address
    _cancel_on_signals()
    try:
        async with run_children(plans, on_line, grace_seconds) as children:
            await unless_dead(children, announce(children, console))
            if request is not None:
                return await unless_dead(children, run_generation(address, request, is_plain=is_plain))
            if url is not None:
                console.print(f"OpenAI-compatible API at {url}/v1, page at {url}/", soft_wrap=True)
            console.print(f"ready; try: specpair generate --address {address} 'def main'", soft_wrap=True)
            await unless_dead(children, asyncio.Event().wait())
    except asyncio.CancelledError:
        if request is not None:
            raise typer.Exit(INTERRUPTED) from None
        console.print("stopped", style="dim")


def _cancel_on_signals() -> None:
    """The first SIGINT or SIGTERM cancels the current task."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if not task.cancelling():
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)


def _metrics_port(name: str, wanted: int | None, *, is_once: bool) -> int:
    """The port asked for; else the usual one, or 0, which is none, where nobody is going to ask."""
    if wanted is None:
        return 0 if is_once else METRICS_PORTS[name]
    return wanted


def _port(name: str, wanted: int | None, *, is_once: bool) -> int:
    """The port asked for; else the usual one, or a free one where nobody has to know it."""
    if wanted == 0 or (wanted is None and is_once):
        return free_port()
    return USUAL_PORTS[name] if wanted is None else wanted
