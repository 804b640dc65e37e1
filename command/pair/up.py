"""`specpair up`: the whole pair on this machine, as three processes in one terminal."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from inspect import Parameter
from typing import Annotated, Any

import typer
from rich.console import Console

from command.connection import coordinator_at
from command.consoles import console_on
from command.draft_files import model_to_load
from command.failures import WRONG_USE, CommandError, friendly
from command.flags.option import Options, configured, options, parameters
from command.flags.shared import ChatOption, EncoderInputOption, NoColorOption
from command.flags.signature import takes
from command.generation.generate import run_generation
from command.generation.request import completion_request
from command.generation.request_options import request_fields, request_parameters
from command.info import has_encoder
from command.interrupts import INTERRUPTED
from command.pair.flag_checks import check_models, check_services, check_template
from command.pair.gpu_shares import gpu_shares
from command.pair.local_pair import (
    LOOPBACK,
    ServicePlan,
    announce,
    cancel_on_signals,
    free_port,
    ignore_line,
    line_printer,
    plan_service,
    reachable_address,
    run_children,
    unless_dead,
)
from command.pair.ports import check_free
from command.pair.restarts import keep_running
from command.pair.several_drafts import NO_DRAFT, SeveralDrafts, left_to_services, several_drafts
from command.pair.speedup import measure_speedup
from command.serve import COORDINATOR_PORT, DRAFT_METRICS_PORT, DRAFT_PORT, HTTP_PORT, TARGET_METRICS_PORT, TARGET_PORT
from coordinator.config import CoordinatorConfig
from coordinator.http_config import HttpConfig
from draft_service.config import DraftConfig
from specpair.engine_config import MODEL_KINDS, EngineConfig
from specpair.errors import SpecpairError
from specpair.named_models import partner, resolve_model
from specpair.options import FROM_TEXT, Drafter
from specpair.security.settings import ServerSecurity, check_exposure
from specpair.server.config import ServerConfig
from specpair.v1 import coordinator_service_pb2 as pb

MODELS = ("draft", "target")
INFO_TIMEOUT = 10.0
USUAL_PORTS = {
    "port": COORDINATOR_PORT,
    "draft_port": DRAFT_PORT,
    "target_port": TARGET_PORT,
    "http_port": HTTP_PORT,
    "draft_metrics_port": DRAFT_METRICS_PORT,
    "target_metrics_port": TARGET_METRICS_PORT,
}

ALL = options(ServerConfig, only=("grace_seconds", "log_level")) | options(
    EngineConfig, only=("max_num_speculative_tokens",)
)
"""The options that all three services get."""
BOTH = options(EngineConfig, only=("dtype", "max_model_len", "max_num_seqs"))
"""The options that draft and target get."""
DRAFT = options(DraftConfig, only=("drafter", "table", "own_draft", "own_num_speculative_tokens"))
TARGET = options(
    EngineConfig, only=("deterministic", "generation_config", "head", "head_quantization", "head_tree_tokens")
)
"""Only the target: the draft's logits change what is accepted, never a greedy or coupled output, and the rest is the
target's."""
COORDINATOR = {
    **options(
        CoordinatorConfig,
        only=(
            *("num_speculative_tokens", "rule", "num_tree_tokens", "merge", "merge_wait", "work_ahead"),
            *("max_requests", "served_model_names", "chat_template", "reasoning_parser", "tool_call_parser"),
        ),
    ),
    **options(ServerConfig, only=("host", "allowed_hosts")),
    **options(ServerSecurity, only=("tokens_file", "is_insecure")),
    **ALL,
}
SHARE = options(EngineConfig, only=("gpu_memory_utilization",))
PORT = options(ServerConfig, only=("port",))
HTTP = options(HttpConfig, only=("port", "allowed_origins"))


def own_options(name: str) -> Options:
    """The options that draft and target each have; their names begin with the service's."""
    prefix = f"{name}_"
    return options(EngineConfig, prefix, only=("device", "quantization")) | options(
        ServerConfig, prefix, only=("port", "metrics_port")
    )


def own_parameters(name: str) -> list[Parameter]:
    """Environment variables do not set them: those are for a service that is started alone."""
    port, metrics = USUAL_PORTS[f"{name}_port"], USUAL_PORTS[f"{name}_metrics_port"]
    help = {
        f"{name}_device": f"Device of the {name}: auto, cpu, cuda or cuda:N.",
        f"{name}_quantization": f"Hold the weights of the {name} in 8 or 4 bits, on a CPU; see docs/usage.md.",
        f"{name}_port": f"Port of the {name}; {port}, or a free one with --prompt.",
        f"{name}_metrics_port": f"Port of the {name}'s /metrics; {metrics}, or none with --prompt. 0 switches it off.",
    }
    unset: dict[str, Any] = {f"{name}_port": None}
    return parameters(own_options(name), help=help, has_variables=False, **unset)


@dataclass(frozen=True, kw_only=True)
class Once:
    """What is done with `--prompt`, before everything stops."""

    request: pb.GenerateTokensRequest
    is_plain: bool
    has_speedup: bool

    async def run(self, address: str, console: Console) -> None:
        """Streams the completion to standard output; then measures the speedup and prints it as one line."""
        await run_generation(address, self.request, is_plain=self.is_plain)
        if self.has_speedup:
            typer.echo((await measure_speedup(address, self.request, console)).line())


@friendly
@takes(
    parameters(DRAFT | BOTH | SHARE | TARGET | COORDINATOR),
    parameters(
        PORT,
        help={"port": f"Port of the coordinator; {COORDINATOR_PORT}, or a free one with --prompt."},
        has_variables=False,
        port=None,
    ),
    parameters(
        HTTP,
        help={
            "http_port": f"Port of the OpenAI-compatible API, the page and /metrics; {HTTP_PORT}, or none with "
            "--prompt. 0 switches them off."
        },
        http_port=None,
    ),
    own_parameters("draft"),
    own_parameters("target"),
    request_parameters("temperature", "seed", "max_tokens", max_tokens=128),
)
def up(
    draft: Annotated[
        str | None,
        typer.Option(
            "--draft",
            envvar="SPECPAIR_DRAFT_MODEL",
            help=f"Draft: {MODEL_KINDS}; none for no draft service. Default, if one is needed: that of the target's "
            "name, else bundled; none with --head. Several, and drafters such as ngram, are separated by commas; see "
            "--merge.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            envvar="SPECPAIR_TARGET_MODEL",
            help=f"Target: {MODEL_KINDS}. Default: that of the draft's name, else bundled.",
        ),
    ] = None,
    *,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not print the services' logs.")] = False,
    prompt: Annotated[
        str | None, typer.Option("--prompt", help="Generate one completion of this text, then stop everything.")
    ] = None,
    chat: ChatOption = False,
    encoder_input: EncoderInputOption = None,
    speedup: Annotated[
        bool,
        typer.Option(
            "--speedup",
            help="With --prompt: then run it with and without speculation, in turns, and print the speedup.",
        ),
    ] = False,
    no_color: NoColorOption = False,
    **values: Any,
) -> None:
    """Start draft, target and coordinator on this machine and keep them running until Ctrl-C.

    Once all were ready, one that ends is started again. With --prompt, or before, it ends everything.

    The coordinator listens on --host, draft and target on the loopback interface. For other layouts, start each
    service with `specpair serve`.
    """
    check_exposure(values["host"], configured(ServerSecurity, values))
    check_template(values["chat_template"])
    drafts = several_drafts(_draft_or_default(draft, values))
    check_models(target, values["own_draft"], drafts)
    once = None
    if prompt is not None or encoder_input is not None:
        request = _request(prompt, encoder_input, values, drafts, is_chat=chat)
        once = Once(request=request, is_plain=no_color, has_speedup=speedup)
    elif chat or speedup:
        raise CommandError("--chat and --speedup require --prompt", WRONG_USE)
    check_services(values, drafts)
    values |= chosen_ports(values, is_once=once is not None)
    target = target or partner(drafts.first)
    plans = plan_services(values, models_to_load(drafts, values, target), resolve_model(target, "target"), drafts)
    url = f"http://{reachable_address(values['host'], port)}" if (port := values["http_port"]) else None
    console = console_on(is_error=True, is_plain=no_color)
    asyncio.run(_run(plans, console, once, url, grace_seconds=values["grace_seconds"], is_quiet=quiet))


def models_to_load(drafts: SeveralDrafts, values: dict[str, Any], target: str) -> list[str | None]:
    """The model of each draft service, None for one without a model."""
    if not drafts.has_services:
        return []
    usual = model_to_load(drafts.first, values["drafter"], usual=partner(target))
    return [usual, *(resolve_model(model, "draft") for _, model in drafts.models[1:])]


def _request(
    prompt: str | None, encoder_input: str | None, values: dict[str, Any], drafts: SeveralDrafts, *, is_chat: bool
) -> pb.GenerateTokensRequest:
    """The one completion. Raises CommandError or InvalidFieldError."""
    if values["tokens_file"] is not None:
        raise CommandError("--prompt is sent without a token: leave --tokens-file out", WRONG_USE)
    fields = left_to_services(request_fields(values), drafts)
    return completion_request(prompt, encoder_input=encoder_input, is_chat=is_chat, **fields)


def _draft_or_default(draft: str | None, values: dict[str, Any]) -> str | None:
    """What `--draft` says; without it, a drafter that reads the text alone or a head of the target needs no service."""
    if draft in (None, NO_DRAFT) and values["drafter"] in FROM_TEXT:
        return values["drafter"]
    is_alone = draft is None and values["head"] is not None and values["drafter"] is Drafter.MODEL
    return NO_DRAFT if is_alone else draft


def plan_services(
    values: dict[str, Any], loaded: Sequence[str | None], target: str, drafts: SeveralDrafts
) -> list[ServicePlan]:
    """The services to start, from the values of the options and the resolved models; the coordinator last. `loaded`
    is what `models_to_load` says."""
    devices = {name: values[f"{name}_device"] for name in MODELS}
    has_model = bool(loaded) and loaded[0] is not None
    shares = gpu_shares(values["gpu_memory_utilization"], devices["draft"] if has_model else None, devices["target"])
    shares = shares._replace(draft=round(shares.draft / max(len(loaded), 1), 4))
    models = [*(("draft", folder, DRAFT) for folder in loaded), ("target", target, TARGET)]
    plans: list[ServicePlan] = []
    for place, (name, folder, its_options) in enumerate(models):
        flags = _flags(its_options | BOTH | ALL, values) | _flags(own_options(name), values, f"{name}_")
        flags |= {"--model": folder, "--gpu-memory-utilization": getattr(shares, name)}
        port = values[f"{name}_port"]
        if name == "draft" and place:  # the ports are those of the first draft
            port, flags["--metrics-port"] = free_port(), 0
        plans.append(plan_service(name, flags, host=LOOPBACK, port=port))
    services = [plan.address for plan in plans]
    addresses: dict[str, object] = {"--draft": drafts.addresses(services[:-1]), "--target": services[-1]}
    flags = addresses | _flags(COORDINATOR | HTTP, values)
    return [*plans, plan_service("coordinator", flags, host=values["host"], port=values["port"])]


def _flags(given: Options, values: dict[str, Any], prefix: str = "") -> dict[str, object]:
    """The options as flags of a service, without the prefix."""
    return {
        f"--{name.removeprefix(prefix).replace('_', '-')}": option.flag.default_text
        if values[name] is None
        else values[name]
        for name, option in given.items()
    }


async def _run(
    plans: list[ServicePlan],
    console: Console,
    once: Once | None,
    url: str | None,
    *,
    grace_seconds: float,
    is_quiet: bool,
) -> None:
    """Everything from start to stop; `url` is that of HTTP. A signal stops the services in order at any point.

    Raises CommandError for ports that are in use.
    """
    on_line = ignore_line if is_quiet or once is not None else line_printer(console)
    address = plans[-1].address
    check_free(plans)
    cancel_on_signals(console)
    try:
        async with run_children(plans, on_line, grace_seconds) as children:
            await unless_dead(children, announce(children, console))
            if once is not None:
                return await unless_dead(children, once.run(address, console))
            if url is not None:
                console.print(f"OpenAI-compatible API at {url}/v1, page at {url}/", markup=False, soft_wrap=True)
            ready = f"ready; try: specpair generate --address {address} {await hint(address)}"
            console.print(ready, markup=False, soft_wrap=True)
            await keep_running(children, plans, on_line, console, is_quiet=is_quiet)
    except asyncio.CancelledError:
        if once is not None:
            raise typer.Exit(INTERRUPTED) from None
        console.print("stopped", style="dim")


async def hint(address: str) -> str:
    """Arguments of `specpair generate` that suit the target."""
    with suppress(CommandError, SpecpairError):  # such as a token that is needed to ask
        async with coordinator_at(address) as stub:
            pair: pb.GetPairInfoResponse = await stub.GetPairInfo(pb.GetPairInfoRequest(), timeout=INFO_TIMEOUT)
        if has_encoder(pair.target):
            return "--encoder-input 'the small dog sees a red house .'"
    return "'def main'"


def chosen_ports(values: dict[str, Any], *, is_once: bool) -> dict[str, int]:
    """The given ports, else the usual ones; for a single prompt, free ones, and none for HTTP and metrics.

    For a service port 0 means a free one; for HTTP and metrics it means none.
    """
    ports: dict[str, int] = {}
    for name, usual in USUAL_PORTS.items():
        is_optional = name == "http_port" or "metrics" in name
        wanted = values[name] if values[name] is not None else 0 if is_once else usual
        ports[name] = wanted if wanted or is_optional else free_port()
    return ports
