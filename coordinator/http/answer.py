"""What becomes of the responses to one request, whatever the endpoint."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from coordinator.http.outputs import Outputs
from coordinator.requests.reasoning import Reasoning
from specpair.v1 import coordinator_service_pb2 as pb


class Answer(Protocol):
    """Builds the answer to one request from Serving's responses: either `add` and then `body`, or `chunks` and then
    `last_chunks`."""

    @property
    def request_id(self) -> str: ...

    @property
    def outputs(self) -> Outputs:
        """Those received so far."""
        ...

    @property
    def reasoning(self) -> Reasoning | None:
        """What comes before the answers; None if all text is the answer."""
        ...

    @property
    def shown(self) -> Mapping[int, str]:
        """Special tokens that the outputs show, with their texts."""
        ...

    @property
    def stream_end(self) -> bytes:
        """What comes after the last chunk of a stream."""
        ...

    def add(self, prompt_index: int, response: pb.GenerateTokensResponse) -> None:
        """Takes a response for the whole answer."""
        ...

    def body(self) -> dict[str, Any]:
        """The whole answer, once every output is finished."""
        ...

    def chunks(self, prompt_index: int, response: pb.GenerateTokensResponse) -> Iterable[dict[str, Any]]:
        """The chunks of a stream for a response; none if it has nothing that the client asked for."""
        ...

    def last_chunks(self) -> list[dict[str, Any]]:
        """The chunks after those of the last response."""
        ...

    def failed(self, status: int, body: dict[str, Any]) -> dict[str, Any]:
        """The last chunk of a stream that failed, `status` and `body` being those of a whole answer that fails so."""
        ...
