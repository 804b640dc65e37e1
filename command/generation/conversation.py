"""The conversation so far, as the prompt of the next request."""

from specpair.v1 import coordinator_service_pb2 as pb


class Conversation:
    """A conversation in the model's chat format or, if it is plain, as one text of both sides."""

    def __init__(self, system: str | None = None, *, is_plain: bool = False):
        """`system` comes first, also after `clear`."""
        self._system = system
        self._is_plain = is_plain
        self._turns: list[tuple[str, str]] = []
        """Questions with their answers, oldest first."""

    def ask(self, request: pb.GenerateTokensRequest, question: str) -> None:
        """Sets the prompt: everything so far, then the question."""
        if self._is_plain:
            request.text = self._text() + _line(question)
            return
        request.chat.SetInParent()
        if self._system:
            request.chat.messages.add(role="system", content=self._system)
        for asked, answered in self._turns:
            request.chat.messages.add(role="user", content=asked)
            request.chat.messages.add(role="assistant", content=answered)
        request.chat.messages.add(role="user", content=question)

    def add(self, question: str, answer: str) -> None:
        """Adds a question with its answer."""
        self._turns.append((question, answer))

    def clear(self) -> None:
        """Begins a new conversation."""
        self._turns.clear()

    def _text(self) -> str:
        said = [self._system] if self._system else []
        return "".join(_line(text) for text in (*said, *(text for turn in self._turns for text in turn)))


def _line(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"
