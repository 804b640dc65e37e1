"""The request options of `generate`, `chat` and `trace`; defaults and limits are the server's."""

from dataclasses import dataclass
from inspect import Parameter
from typing import Annotated, Any

from command.flags.option import field_values, options, parameters
from specpair.flags import SPECULATION, Flag
from specpair.options import Drafter, Encoding, Merge, Rule, WorkAhead
from specpair.speculation.beams.beam_options import EarlyStopping

SAMPLING = "Sampling"
OUTPUT = "Output"
BEAMS = "Beam search"
FILE = "FILE|TEXT"


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """Fields of a request and of its sampling; None means the server's default."""

    temperature: Annotated[
        float | None, Flag("Divides the logits; 0 is greedy. Default: the model's, else 1.", SAMPLING)
    ] = None
    top_k: Annotated[
        int | None, Flag("Keeps the k most likely tokens; 0 keeps all. Default: the model's, else 0.", SAMPLING)
    ] = None
    top_p: Annotated[
        float | None,
        Flag("Keeps the smallest set of tokens that reaches this probability. Default: the model's, else 1.", SAMPLING),
    ] = None
    min_p: Annotated[
        float | None,
        Flag(
            "Drops tokens below this share of the likeliest token's probability. Default: the model's, else 0.",
            SAMPLING,
        ),
    ] = None
    repetition_penalty: Annotated[
        float | None,
        Flag(
            "Above 1, tokens seen in prompt or output become less likely; below 1, more likely. Default: the model's, "
            "else 1.",
            SAMPLING,
        ),
    ] = None
    presence_penalty: Annotated[
        float | None, Flag("Subtracted from the logit of every token seen in the output. From -2 to 2.", SAMPLING)
    ] = None
    frequency_penalty: Annotated[
        float | None,
        Flag("Subtracted from a token's logit each time it was seen in the output. From -2 to 2.", SAMPLING),
    ] = None
    logit_bias: Annotated[
        list[str] | None,
        Flag("Added to the logit of one token, -100 to 100; may be given several times.", SAMPLING, metavar="ID=BIAS"),
    ] = None
    allowed_token_ids: Annotated[
        list[int] | None,
        Flag(
            "A token that may be generated; all tokens not allowed are banned. May be given several times.",
            SAMPLING,
            "allowed_token_id",
        ),
    ] = None
    banned_token_ids: Annotated[
        list[int] | None,
        Flag("A token that is never generated; may be given several times.", SAMPLING, "banned_token_id"),
    ] = None
    seed: Annotated[
        int | None,
        Flag(
            "Repeats an earlier output, with --rule coupled or a fixed --num-speculative-tokens. Default: random.",
            SAMPLING,
        ),
    ] = None
    max_tokens: Annotated[int | None, Flag("Most tokens to generate. Default: as many as fit.", SAMPLING)] = None
    min_tokens: Annotated[int | None, Flag("Fewest tokens to generate: nothing ends the output before.", OUTPUT)] = None
    stop_strings: Annotated[
        list[str] | None, Flag("Text that ends the output; may be given several times.", OUTPUT, "stop")
    ] = None
    stop_token_ids: Annotated[
        list[int] | None, Flag("Token that ends the output; may be given several times.", OUTPUT, "stop_token_id")
    ] = None
    ignore_eos: Annotated[bool, Flag("Continue after the end-of-text token.", OUTPUT)] = False
    n: Annotated[int | None, Flag("Number of outputs; the i-th is drawn with seed + i.", OUTPUT)] = None
    best_of: Annotated[
        int | None,
        Flag("Outputs to generate; the --n with the highest mean logprob are printed, best first.", OUTPUT),
    ] = None
    logprobs: Annotated[
        int | None,
        Flag(
            "With --json, each token's logprob under the target and this many of the most likely tokens; 0 for none.",
            OUTPUT,
        ),
    ] = None
    prompt_logprobs: Annotated[
        int | None, Flag("The same for the tokens of the prompt; with --max-tokens 0, only for them.", OUTPUT)
    ] = None
    json_schema: Annotated[
        str | None,
        Flag("The output is JSON that this JSON Schema allows: a file, or the schema itself.", OUTPUT, metavar=FILE),
    ] = None
    regex: Annotated[str | None, Flag("The output is what this regular expression matches as a whole.", OUTPUT)] = None
    grammar: Annotated[
        str | None,
        Flag(
            "The output is a text of this grammar, in llguidance's form of Lark: a file, or itself.",
            OUTPUT,
            metavar=FILE,
        ),
    ] = None
    choices: Annotated[
        list[str] | None, Flag("A text that the output may be; may be given several times.", OUTPUT, "choice")
    ] = None
    echo: Annotated[bool, Flag("Print the prompt before the output.", OUTPUT)] = False
    num_beams: Annotated[
        int | None,
        Flag("Beam search with so many beams; the --n best are printed. Default: none, tokens are drawn.", BEAMS),
    ] = None
    length_penalty: Annotated[
        float | None,
        Flag("A beam's sum of logprobs is divided by its length to this power. Default: 1.", BEAMS),
    ] = None
    early_stopping: Annotated[
        EarlyStopping | None,
        Flag(
            "When a search ends: first, as soon as enough beams have ended; heuristic, when the best running beam is "
            "no better now; never, when none could become better. Default: heuristic.",
            BEAMS,
        ),
    ] = None
    num_speculative_tokens: Annotated[
        int | None,
        Flag("Tokens proposed per round; 0 switches speculation off. Default: the server's.", SPECULATION),
    ] = None
    num_tree_tokens: Annotated[
        int | None,
        Flag(
            "Proposals are trees of so many tokens at most, on paths of --num-speculative-tokens; 0 for chains. "
            "Default: the server's.",
            SPECULATION,
        ),
    ] = None
    rule: Annotated[
        Rule | None,
        Flag(
            "How proposals are judged; all rules are exact. block accepts the most; coupled gives the same tokens for "
            "the same seed, whatever the draft does. Default: the server's, usually block; token with --lenience.",
            SPECULATION,
        ),
    ] = None
    drafter: Annotated[
        Drafter | None,
        Flag(
            "What proposes; all are exact. `specpair info` lists those of the draft. Default: the draft's own choice.",
            SPECULATION,
        ),
    ] = None
    drafts: Annotated[
        list[str] | None,
        Flag(
            "A draft that proposes, by its name, or a drafter such as ngram; given several times, their proposals are "
            "merged. `specpair info` lists them. Default: the server's.",
            SPECULATION,
            "draft",
        ),
    ] = None
    merge: Annotated[
        Merge | None,
        Flag("What becomes of the proposals of several drafts: tree or none. Default: the server's.", SPECULATION),
    ] = None
    encoding: Annotated[
        Encoding | None, Flag("How distributions are sent; both are exact. Default: sparse.", SPECULATION)
    ] = None
    work_ahead: Annotated[
        WorkAhead | None,
        Flag(
            "Whether the draft prepares proposals during verification; it changes no token. Default: the server's.",
            SPECULATION,
        ),
    ] = None
    lenience: Annotated[
        float | None,
        Flag(
            "LOSSY below 1: accepts more of the draft's tokens, each at most 1 / lenience times as often as the "
            "target would generate it. Default: 1, exact.",
            SPECULATION,
        ),
    ] = None


FLAGS = {option.field: option.words for option in options(RequestOptions).values()}
"""Flags by the fields that they set."""


def request_parameters(*only: str, **defaults: Any) -> list[Parameter]:
    """Parameters for the named fields, or for all. Environment variables do not set them."""
    help = {"max_tokens": "Most tokens to generate."} if "max_tokens" in defaults else None
    return parameters(options(RequestOptions, only=only), help=help, has_variables=False, **defaults)


def request_fields(values: dict[str, Any]) -> dict[str, Any]:
    """The values of the parameters, by the fields of the request."""
    return field_values(RequestOptions, values)
