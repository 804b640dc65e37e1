"""The bundled pair through its three processes, for each K and temperature, interleaved."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from specpair.options import Rule
from specpair.rpc.messages import rule_to_proto
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One column of the comparison."""

    temperature: float
    num_speculative_tokens: int
    rule: Rule = Rule.BLOCK


@dataclass
class Tally:
    """What all requests of one setting came to."""

    tokens_per_second: list[float] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0
    first_drafted: int = 0
    first_accepted: int = 0
    tokens: int = 0
    rounds: int = 0
    draft_us: int = 0
    verify_us: int = 0
    network_us: int = 0

    def add(self, summary: pb.GenerationSummary) -> None:
        speculation = summary.speculation
        decoding_us = summary.total_time_us - summary.time_to_first_token_us
        self.tokens_per_second.append((summary.completion_token_count - 1) / decoding_us * 1e6)
        self.drafted += speculation.draft_token_count
        self.accepted += speculation.accepted_token_count
        self.first_drafted += sum(speculation.drafted_per_position[:1])
        self.first_accepted += sum(speculation.accepted_per_position[:1])
        self.tokens += summary.completion_token_count - 1
        self.rounds += speculation.round_count
        self.draft_us += speculation.draft_time_us
        self.verify_us += speculation.verify_time_us
        self.network_us += speculation.network_time_us

    def row(self, plain: "Tally") -> dict[str, float]:
        """The figures of a report; `plain` is the same temperature at K = 0. Times are milliseconds a round."""
        rounds = max(1, self.rounds)
        return {
            **self.acceptance(),
            "tokens_per_second": median(self.tokens_per_second),
            "ratio_to_plain": median(self.tokens_per_second) / median(plain.tokens_per_second),
            "draft_ms": self.draft_us / rounds / 1000,
            "verify_ms": self.verify_us / rounds / 1000,
            "network_ms": self.network_us / rounds / 1000,
        }

    def acceptance(self) -> dict[str, float]:
        """What became of the proposals. The first token's rate is the alpha of Leviathan et al., free of K."""
        return {
            "acceptance_rate": self.accepted / max(1, self.drafted),
            "first_token_acceptance": self.first_accepted / max(1, self.first_drafted),
            "tokens_per_round": self.tokens / max(1, self.rounds),
        }


async def measure(
    stub: CoordinatorServiceStub, settings: list[Setting], prompts: list[str], max_tokens: int
) -> dict[Setting, Tally]:
    """Every setting on every prompt, one request at a time, the settings in turn on each prompt."""
    tallies = {setting: Tally() for setting in settings}
    await complete(stub, settings[-1], prompts[0], max_tokens, seed=0)  # warm up
    for seed, prompt in enumerate(prompts):
        print(f"prompt {seed + 1} of {len(prompts)}", flush=True)
        for setting in settings:
            tallies[setting].add(await complete(stub, setting, prompt, max_tokens, seed))
    return tallies


async def complete(
    stub: CoordinatorServiceStub, setting: Setting, prompt: str, max_tokens: int, seed: int
) -> pb.GenerationSummary:
    request = pb.GenerateTokensRequest(
        text=prompt,
        max_tokens=max_tokens,
        num_speculative_tokens=setting.num_speculative_tokens,
        rule=rule_to_proto(setting.rule),
        sampling={"temperature": setting.temperature, "seed": seed},
        ignore_eos=True,
    )
    summary = pb.GenerationSummary()
    async for response in stub.GenerateTokens(request):
        summary = response.summary
    return summary


def report(tallies: dict[Setting, Tally]) -> Iterator[dict[str, float]]:
    """One row for each setting."""
    for setting, tally in tallies.items():
        plain = tallies[Setting(temperature=setting.temperature, num_speculative_tokens=0)]
        yield {"temperature": setting.temperature, "k": setting.num_speculative_tokens, **tally.row(plain)}
