"""`specpair info`: the running pair, its limits and whether all three services are ready."""

import asyncio
import json as json_module
from typing import Any

import typer
from google.protobuf.json_format import MessageToDict
from rich.table import Table

from command.connection import coordinator_at
from command.consoles import console_on
from command.failures import FAILED, friendly
from command.flags.shared import DEFAULT_ADDRESS, AddressOption, JsonOption, NoColorOption
from specpair.model_info import NOT_QUANTISED, VocabularyMethod
from specpair.options import FROM_TEXT, Rule
from specpair.rpc.messages import (
    model_info_from_proto,
    rule_to_proto,
    sampling_defaults_from_proto,
    translation_from_proto,
)
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.sequence_service_pb2 import Divergence, GetModelInfoResponse, VocabularyTranslation

TIMEOUT = 10.0
RULES = {rule_to_proto(rule): rule.value for rule in Rule}
METHODS = {VocabularyMethod.TLI: "common tokens (TLI)", VocabularyMethod.SLEM: "text (SLEM)"}


@friendly
def info(
    address: AddressOption = DEFAULT_ADDRESS,
    json: JsonOption = False,
    no_color: NoColorOption = False,
) -> None:
    """Show the running pair, its limits and its state.

    Exits with status 0 only if the coordinator, the target and, if the pair has one, the draft service are all ready.
    """
    pair = asyncio.run(_ask(address))
    if json:
        typer.echo(json_module.dumps(_document(pair), indent=2))
    else:
        console_on(is_plain=no_color).print(info_table(pair, address))
    if not is_ready(pair):
        raise typer.Exit(FAILED)


def is_ready(pair: pb.GetPairInfoResponse) -> bool:
    return pair.HasField("target") and (pair.HasField("draft") or needs_no_service(pair))


def needs_no_service(pair: pb.GetPairInfoResponse) -> bool:
    """Whether the pair has no draft service. An older coordinator names only drafters that it runs itself."""
    if pair.HasField("has_draft_service"):
        return not pair.has_draft_service
    return bool(pair.drafts) and all(draft.name in FROM_TEXT for draft in pair.drafts)


async def _ask(address: str) -> pb.GetPairInfoResponse:
    async with coordinator_at(address) as stub:
        return await stub.GetPairInfo(pb.GetPairInfoRequest(), timeout=TIMEOUT)


def _document(pair: pb.GetPairInfoResponse) -> dict[str, Any]:
    """The message with its own field names, and with 64-bit numbers as numbers: protobuf's JSON writes strings."""
    document = MessageToDict(pair, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    for name in ("draft", "target"):
        document.setdefault(name, None)
        if document[name] is not None:
            document[name]["parameter_count"] = int(document[name]["parameter_count"])
    return {"ready": is_ready(pair), **document}


def info_table(pair: pb.GetPairInfoResponse, address: str) -> Table:
    table = Table("", "draft", "target", title=f"specpair {pair.version} at {address}", title_justify="left")
    models = [getattr(pair, name) if pair.HasField(name) else None for name in ("draft", "target")]
    draft, target = map(_state, models)
    table.add_row("state", "none" if needs_no_service(pair) else draft, target)
    facts = [{} if model is None else _facts(model) for model in models]
    for label in dict.fromkeys(label for known in facts for label in known):
        table.add_row(label, *(known.get(label, "") for known in facts))
    own = f"{pair.num_speculative_tokens}" if pair.HasField("num_speculative_tokens") else "an adaptive number of"
    most = pair.max_num_speculative_tokens
    beams = f"at most {pair.max_num_beams} beams" if pair.max_num_beams else "no beam search"
    running = f"{pair.request_count} requests running"
    caption = f"{running} · {own} tokens proposed per round, at most {most}{_rule(pair)} · {beams}"
    if pair.HasField("sampling_defaults"):
        caption += f"\nthe model's for requests that set none: {sampling_defaults_from_proto(pair.sampling_defaults)}"
    if pair.drafts:
        is_merged = pair.merge == pb.MERGE_MODE_TREE
        use = "merged into one tree" if is_merged else "the first proposes alone"
        caption += "\n" + " · ".join([*map(_named, pair.drafts), use])
    worth = [worth_line(pair.proposal_worth)] if pair.HasField("proposal_worth") else []
    table.caption = "\n".join([caption, *worth])
    table.caption_justify = "left"
    return table


def _rule(pair: pb.GetPairInfoResponse) -> str:
    """The rule; nothing if the coordinator does not say, or has one that is unknown here."""
    return f" · rule {RULES[pair.rule]}" if pair.rule in RULES else ""


def _named(draft: pb.NamedDraft) -> str:
    """One of several drafts in a few words."""
    if draft.name in FROM_TEXT:
        return f"{draft.name}: in the coordinator"
    if not draft.HasField("draft"):
        return f"draft {draft.name}: not reached"
    return f"draft {draft.name}: {draft.draft.model_name}"


def worth_line(worth: pb.ProposalWorth) -> str:
    """Which number of tokens is right at present, and why."""
    outputs = "1 output" if worth.output_count == 1 else f"{worth.output_count} outputs"
    line = f"with {outputs} a first token pays from an acceptance of {worth.break_even_acceptance:.0%}"
    if worth.break_even_acceptance > 1.0:
        line = f"with {outputs} a first token pays at no acceptance"
    if not worth.HasField("acceptance"):
        return line
    best = f"best K {worth.best_num_speculative_tokens}, {worth.gain:.2f} times the tokens/s of K = 0"
    return f"{line} · it is {worth.acceptance:.0%} · {best if worth.best_num_speculative_tokens else 'best K 0'}"


def _state(model: GetModelInfoResponse | None) -> str:
    return "[red]not reached[/]" if model is None else "[green]ready[/]"


def _facts(model: GetModelInfoResponse) -> dict[str, str]:
    """The rows of one service; a draft may have drafters and no model."""
    drafters = model_info_from_proto(model).drafters
    return {
        **(_model_facts(model) if model.vocab_size else {}),
        **({"drafters": ", ".join(drafters)} if drafters else {}),
        **({"accelerated": f"by {model.own_draft}"} if model.own_draft else {}),
        "longest sequence": f"{model.max_model_len} tokens",
        "most proposed": f"{model.max_num_speculative_tokens} tokens",
        "sequences": f"{model.sequence_count} open, at most {model.max_num_seqs} of one client",
    }


def _model_facts(model: GetModelInfoResponse) -> dict[str, str]:
    return {
        "model": f"{model.model_name} ({model.architecture})",
        "weights": f"{model.parameter_count / 1e6:.1f} M, {_weights(model)}, vocabulary {model.vocab_size}",
        **({"divergence": _divergence(model.divergence)} if model.HasField("divergence") else {}),
        **({"vocabulary": ", ".join(map(_translation, model.translations))} if model.translations else {}),
        **({"encoder": f"reads at most {model.encoder_decoder.max_encoder_len} tokens"} if has_encoder(model) else {}),
        "device": f"{model.device}, {model.cache} cache{_ranks(model)}",
        **({"runner": model.runner} if model.runner else {}),
        "cache blocks free": f"{model.free_block_count} of {model.block_count}, {model.block_size} tokens each",
        "deterministic": "yes" if model.deterministic else "no",
    }


def has_encoder(model: GetModelInfoResponse) -> bool:
    return model.HasField("encoder_decoder")


def _weights(model: GetModelInfoResponse) -> str:
    """The type that is computed in, and how the weights are held if not in that type."""
    quantization = model_info_from_proto(model).quantization
    return model.dtype if quantization == NOT_QUANTISED else f"{quantization} ({model.dtype})"


def _ranks(model: GetModelInfoResponse) -> str:
    """How many processes share the model, if it is more than one."""
    return f", {model.tensor_parallel_size} ranks" if model.tensor_parallel_size > 1 else ""


def _translation(message: VocabularyTranslation) -> str:
    """How a draft proposes for a target with another vocabulary."""
    translation = translation_from_proto(message)
    by = METHODS[translation.method]
    if translation.greedy_method is not translation.method:
        by += f"; for greedy outputs {METHODS[translation.greedy_method]}"
    common = f"the target has {translation.overlap:.0%} of its tokens of a text"
    return f"translated by {by}; {common}, {translation.shared_token_count} in all"


def _divergence(divergence: Divergence) -> str:
    return f"{divergence.mean_kl:.4f} nats from the checkpoint, {divergence.greedy_agreement:.1%} of greedy choices"
