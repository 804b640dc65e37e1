"""A draft service for a caller that has no event loop and may not be held up: another engine, between two of its steps.
Whatever goes wrong is an answer that is missing, never an error."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import grpc

from specpair.client.channel import TLS_CONNECT_MS, channel_options, name_options
from specpair.security.credentials import grpc_channel_credentials
from specpair.security.settings import PLAIN, ChannelSecurity
from specpair.security.tokens import AUTHORIZATION, bearer, token_of
from specpair.v1 import draft_service_pb2 as draft_pb2
from specpair.v1 import sequence_service_pb2 as pb
from specpair.v1.draft_service_pb2_grpc import DraftServiceStub
from specpair.v1.sequence_service_pb2_grpc import SequenceServiceStub

SLOW = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)

logger = logging.getLogger(__name__)


class Asked(NamedTuple):
    """How a call ended."""

    response: Any = None
    """None if there was no answer, or an error."""
    is_slow: bool = False
    """No answer in time: the same may be asked again later."""


class BlockingDraft:
    """Calls of one draft service, all of a batch at a time. To be used by one thread."""

    def __init__(
        self,
        address: str,
        security: ChannelSecurity = PLAIN,
        *,
        timeout: float = 1.0,
        cooldown: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        """`address` is host:port. `timeout` in seconds is that of a batch. After a batch without any answer nothing is
        asked for `cooldown` seconds. Certificates are read now, the token with every batch. Raises InvalidFieldError
        for unusable certificates and tokens."""
        self._security = security
        self._timeout = timeout
        self._cooldown = cooldown
        self._clock = clock
        self._quiet_until = clock()
        self._seen: set[grpc.StatusCode] = set()
        self._closing: set[Any] = set()
        """Calls that nobody waits for: one without a reference would be cancelled."""
        token_of(security)  # a mistake is reported now
        if security.tls is None:
            self._channel = grpc.insecure_channel(address, options=channel_options())
        else:
            options = [*channel_options(TLS_CONNECT_MS), *name_options(security.server_name)]
            self._channel = grpc.secure_channel(address, grpc_channel_credentials(security.tls), options=options)
        self._sequences = SequenceServiceStub(self._channel)
        self._draft = DraftServiceStub(self._channel)

    @property
    def is_quiet(self) -> bool:
        """Whether the draft is left alone for now, since it did not answer."""
        return self._clock() < self._quiet_until

    def open(self, requests: Sequence[pb.OpenSequenceRequest]) -> list[Asked]:
        """Opens sequences, all at once. The draft then reads their tokens."""
        return self._ask(self._sequences.OpenSequence, requests)

    def propose(self, requests: Sequence[draft_pb2.ProposeTokensRequest]) -> list[Asked]:
        """Asks for proposals for different sequences, all at once: the draft computes them in the same passes."""
        return self._ask(self._draft.ProposeTokens, requests)

    def close(self, sequence_ids: Sequence[str]) -> None:
        """Closes sequences without waiting. One that this does not reach is closed by its lease."""
        for sequence_id in sequence_ids:
            call = self._start(self._sequences.CloseSequence, pb.CloseSequenceRequest(sequence_id=sequence_id))
            if call is not None:
                self._closing.add(call)
                call.add_done_callback(self._closing.discard)

    def shut_down(self) -> None:
        """Ends the connection."""
        self._channel.close()

    def _ask(self, method: Any, requests: Sequence[Any]) -> list[Asked]:
        if self.is_quiet:
            return [Asked(is_slow=True)] * len(requests)
        started = [self._start(method, request) for request in requests]
        answers = [self._result(call) for call in started]
        if answers and all(answer.is_slow for answer in answers):
            logger.warning("the draft does not answer; no proposals for %g s", self._cooldown)
            self._quiet_until = self._clock() + self._cooldown
        return answers

    def _start(self, method: Any, request: Any) -> Any:
        """A call under way; None if it cannot be made."""
        try:
            token = token_of(self._security)
            metadata = () if token is None else ((AUTHORIZATION, bearer(token)),)
            return method.future(request, timeout=self._timeout, metadata=metadata)
        except Exception:  # a token file that is gone, a closed channel
            logger.exception("a call of the draft could not be made")
            return None

    def _result(self, call: Any) -> Asked:
        """Waits for the answer. Of each kind of error the first is logged."""
        if call is None:
            return Asked(is_slow=True)
        try:
            return Asked(call.result())
        except grpc.FutureCancelledError:
            return Asked(is_slow=True)
        except grpc.RpcError:
            code = call.code()
        if code not in self._seen:
            self._seen.add(code)
            logger.warning("the draft answered %s: %s", code.name, call.details())
        return Asked(is_slow=code in SLOW)
