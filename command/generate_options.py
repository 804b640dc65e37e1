"""The options of `specpair generate`. What is not given is left to the server."""

from typing import Annotated

import typer

from command.options import SAMPLING, SPECULATION
from specpair.options import Drafter, Encoding, Rule

OUTPUT = "Output"

TopKOption = Annotated[
    int | None, typer.Option("--top-k", help="Keeps the k likeliest tokens; 0 keeps all.", rich_help_panel=SAMPLING)
]
TopPOption = Annotated[
    float | None,
    typer.Option("--top-p", help="Keeps the smallest set of tokens of this probability.", rich_help_panel=SAMPLING),
]
MinPOption = Annotated[
    float | None,
    typer.Option(
        "--min-p",
        help="Drops tokens less probable than this share of the likeliest one's probability.",
        rich_help_panel=SAMPLING,
    ),
]
RepetitionPenaltyOption = Annotated[
    float | None,
    typer.Option(
        "--repetition-penalty",
        help="Above 1, tokens seen in prompt or output become less likely; below 1, likelier.",
        rich_help_panel=SAMPLING,
    ),
]
PresencePenaltyOption = Annotated[
    float | None,
    typer.Option(
        "--presence-penalty",
        help="Taken from the logit of every token seen in the output. From -2 to 2.",
        rich_help_panel=SAMPLING,
    ),
]
FrequencyPenaltyOption = Annotated[
    float | None,
    typer.Option(
        "--frequency-penalty",
        help="Taken from a token's logit for each time it was seen in the output. From -2 to 2.",
        rich_help_panel=SAMPLING,
    ),
]
LogitBiasOption = Annotated[
    list[str] | None,
    typer.Option(
        "--logit-bias",
        metavar="ID=BIAS",
        help="Added to the logit of one token, -100 to 100; may be given several times.",
        rich_help_panel=SAMPLING,
    ),
]
AllowedTokenIdOption = Annotated[
    list[int] | None,
    typer.Option(
        "--allowed-token-id",
        help="A token that may come, and with it none that is not named; may be given several times.",
        rich_help_panel=SAMPLING,
    ),
]
BannedTokenIdOption = Annotated[
    list[int] | None,
    typer.Option(
        "--banned-token-id",
        help="A token that never comes; may be given several times.",
        rich_help_panel=SAMPLING,
    ),
]
MinTokensOption = Annotated[
    int | None,
    typer.Option("--min-tokens", help="Tokens before which nothing ends the output.", rich_help_panel=OUTPUT),
]
StopOption = Annotated[
    list[str] | None,
    typer.Option("--stop", help="Text that ends the output; may be given several times.", rich_help_panel=OUTPUT),
]
StopTokenIdOption = Annotated[
    list[int] | None,
    typer.Option(
        "--stop-token-id", help="Token that ends the output; may be given several times.", rich_help_panel=OUTPUT
    ),
]
IgnoreEosOption = Annotated[
    bool, typer.Option("--ignore-eos", help="Go on behind the end-of-text token.", rich_help_panel=OUTPUT)
]
NOption = Annotated[
    int | None,
    typer.Option("--n", help="Outputs for the prompt; the i-th is drawn with seed + i.", rich_help_panel=OUTPUT),
]
BestOfOption = Annotated[
    int | None,
    typer.Option(
        "--best-of",
        help="Outputs to generate; the --n likeliest of them, by mean logprob, are printed, best first.",
        rich_help_panel=OUTPUT,
    ),
]
LogprobsOption = Annotated[
    int | None,
    typer.Option(
        "--logprobs",
        help="With --json, each token's logprob under the target, and so many of the likeliest tokens; 0 for none.",
        rich_help_panel=OUTPUT,
    ),
]
PromptLogprobsOption = Annotated[
    int | None,
    typer.Option(
        "--prompt-logprobs",
        help="The same for the tokens of the prompt; with --max-tokens 0 for them alone.",
        rich_help_panel=OUTPUT,
    ),
]
EchoOption = Annotated[bool, typer.Option("--echo", help="Begin with the prompt.", rich_help_panel=OUTPUT)]
CountOption = Annotated[
    int | None,
    typer.Option(
        "--num-speculative-tokens",
        help="Tokens proposed per round; 0 switches speculation off. Default: the server's.",
        rich_help_panel=SPECULATION,
    ),
]
RuleOption = Annotated[
    Rule | None,
    typer.Option(
        "--rule",
        help="How proposals are judged; all are exact. block accepts the most; coupled gives the same tokens for a "
        "seed whatever the draft does. Default: block, or token with --lenience.",
        rich_help_panel=SPECULATION,
    ),
]
DrafterOption = Annotated[
    Drafter | None,
    typer.Option(
        "--drafter",
        help="What proposes; all are exact. `specpair info` names those of the draft. Default: the draft's own choice.",
        rich_help_panel=SPECULATION,
    ),
]
EncodingOption = Annotated[
    Encoding | None,
    typer.Option(
        "--encoding",
        help="How distributions travel; both are exact. Default: sparse.",
        rich_help_panel=SPECULATION,
    ),
]
LenienceOption = Annotated[
    float | None,
    typer.Option(
        "--lenience",
        help="LOSSY below 1: accepts more of the draft's tokens, each at most 1 / lenience times as often as the "
        "target would say it. Default 1: exact.",
        rich_help_panel=SPECULATION,
    ),
]
