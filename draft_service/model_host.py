"""The draft model in its engine. Loaded only where there is a model: what it imports takes seconds."""

from torch import Tensor

from draft_service.drafters.model import advance
from draft_service.proposal import Drafted
from specpair.engine.host import ModelHost
from specpair.engine.work import Work
from specpair.server.identity import client_name


class DraftModel(ModelHost[Drafted]):
    """The draft model with its sequences."""

    @staticmethod
    def advance(works: list[Work], logits: Tensor) -> None:
        advance(works, logits)

    @staticmethod
    def caller() -> str:
        return client_name()
