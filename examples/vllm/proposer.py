"""A draft service of specpair as a proposer for vLLM: see README.md beside this file."""

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specpair.client.blocking import BlockingDraft
from specpair.security.settings import ChannelSecurity, TlsFiles
from specpair.v1.draft_service_pb2 import ProposeTokensRequest
from specpair.v1.sampling_pb2 import SamplingOptions
from specpair.v1.sequence_service_pb2 import OpenSequenceRequest

IDLE_CALLS = 32
"""Calls without a row for a sequence after which it is closed: vLLM does not say when a request ends."""
PAUSE_CALLS = 8
"""Calls in which a sequence is left out after a late answer: others would wait for it at every step."""
GREEDY = SamplingOptions(temperature=0.0, seed=0)


@dataclass(eq=False)
class Followed:
    """A sequence at the draft service."""

    name: str
    tokens: np.ndarray
    """Those that the draft certainly has: [length] token ids."""
    step: int = 0
    idle_calls: int = 0
    pause_calls: int = 0

    def is_begun_by(self, row: np.ndarray) -> bool:
        """Whether the tokens of a row continue these."""
        return len(row) >= len(self.tokens) and np.array_equal(row[: len(self.tokens)], self.tokens)

    def is_pausing(self) -> bool:
        """Counts the calls of a pause."""
        self.pause_calls = max(0, self.pause_calls - 1)
        return self.pause_calls > 0


class RemoteProposer:
    """What vLLM wants of a `custom_class`. Proposals are the draft's likeliest tokens: vLLM accepts them as tokens that
    were proposed for certain, which is exact at every temperature."""

    def __init__(self, vllm_config: Any):
        self.num_tokens = vllm_config.speculative_config.num_speculative_tokens
        self.max_model_len = vllm_config.model_config.max_model_len
        self.vocab_size = vllm_config.model_config.get_vocab_size()
        parallel = vllm_config.parallel_config
        self.is_asking = parallel.rank % parallel.tensor_parallel_size == 0  # only this rank's drafts are taken
        self.followed: list[Followed] = []  # in the order of the last rows
        self.draft = draft_from(os.environ)

    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens_no_spec: np.ndarray,
        token_ids_cpu: np.ndarray,
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """Proposals for each row, none for those that got no token now. `token_ids_cpu` is [rows, max_model_len], of
        which the first `num_tokens_no_spec` of a row are its tokens. Never raises for what the draft does."""
        proposals: list[list[int]] = [[] for _ in sampled_token_ids]
        if not self.is_asking or self.draft.is_quiet:
            return proposals
        lengths = {row: int(num_tokens_no_spec[row]) for row, sampled in enumerate(sampled_token_ids) if sampled}
        rows = {row: token_ids_cpu[row, :n].copy() for row, n in lengths.items() if n < self.max_model_len}
        asked = {row: followed for row, followed in self.match(rows).items() if not followed.is_pausing()}
        requests = [self.request(followed, rows[row]) for row, followed in asked.items()]
        for (row, followed), answer in zip(asked.items(), self.draft.propose(requests), strict=True):
            if answer.response is not None:
                followed.tokens = rows[row]
                proposals[row] = self.checked(answer.response.proposal.token_ids)
            elif answer.is_slow:
                followed.pause_calls = PAUSE_CALLS
            else:  # the draft lost it: it is opened again at the next call
                self.followed.remove(followed)
        return proposals

    def match(self, rows: Mapping[int, np.ndarray]) -> dict[int, Followed]:
        """The sequences of rows. vLLM names no requests and moves rows, so they are known by their tokens; rows with
        the same tokens may change places. For the others sequences are opened; they are asked from the next call on,
        since the draft has to read them first."""
        free, matched = sorted(self.followed, key=lambda followed: -len(followed.tokens)), {}
        for row, tokens in rows.items():
            usual = [followed for followed in self.followed[row : row + 1] if followed in free]
            found = next((followed for followed in (*usual, *free) if followed.is_begun_by(tokens)), None)
            if found is not None:
                free.remove(found)
                matched[row], found.idle_calls = found, 0
        for followed in free:
            followed.idle_calls += 1
        ended = [followed for followed in free if followed.idle_calls > IDLE_CALLS]
        self.draft.close([followed.name for followed in ended])
        new = [Followed(secrets.token_hex(16), tokens) for row, tokens in rows.items() if row not in matched]
        answers = self.draft.open([self.opening(followed) for followed in new])
        opened = [followed for followed, answer in zip(new, answers, strict=True) if answer.response is not None]
        self.followed = [*matched.values(), *opened, *(followed for followed in free if followed not in ended)]
        return matched

    def opening(self, followed: Followed) -> OpenSequenceRequest:
        """The draft must not propose what the target does not know."""
        ids = followed.tokens.tolist()
        return OpenSequenceRequest(
            sequence_id=followed.name, token_ids=ids, sampling=GREEDY, vocab_size=self.vocab_size
        )

    def request(self, followed: Followed, tokens: np.ndarray) -> ProposeTokensRequest:
        """What the draft has beyond the tokens that both know is rolled back: its proposal, where it was refused."""
        followed.step += 1
        return ProposeTokensRequest(
            sequence_id=followed.name,
            step=followed.step,
            base_length=len(followed.tokens),
            appended_token_ids=tokens[len(followed.tokens) :].tolist(),
            num_speculative_tokens=min(self.num_tokens, self.max_model_len - len(tokens)),
        )

    def checked(self, proposed: Sequence[int]) -> list[int]:
        """The tokens of a proposal, up to the first that vLLM could not use."""
        known = [token < self.vocab_size for token in proposed]
        return list(proposed[: (known.index(False) if False in known else len(known))][: self.num_tokens])


def draft_from(environment: Mapping[str, str]) -> BlockingDraft:
    """The draft that the variables of README.md name. Raises InvalidFieldError for unusable certificates and tokens."""
    get = environment.get
    files = TlsFiles(
        cert=get("SPECPAIR_DRAFT_TLS_CERT"), key=get("SPECPAIR_DRAFT_TLS_KEY"), ca=get("SPECPAIR_DRAFT_TLS_CA")
    )
    security = ChannelSecurity(
        tls=files if files.paths or files.ca else None,
        server_name=get("SPECPAIR_DRAFT_TLS_NAME"),
        token_file=get("SPECPAIR_DRAFT_TOKEN_FILE"),
    )
    timeout = float(get("SPECPAIR_DRAFT_TIMEOUT", "0.5"))
    return BlockingDraft(get("SPECPAIR_DRAFT", "127.0.0.1:50051"), security, timeout=timeout)
