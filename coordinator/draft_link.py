"""The draft as the coordinator knows it: usable, left alone for a while, or still to be checked."""

import asyncio
import logging
import time

from coordinator.config import CoordinatorConfig
from coordinator.peer import DraftPeer
from coordinator.target_link import TargetLink
from coordinator.tokenizer import Tokenizer
from coordinator.vocabulary import check_vocabularies, has_no_model
from specpair.errors import PeerUnavailableError, SpecpairError, VocabularyMismatchError
from specpair.model_info import ModelInfo
from specpair.options import Drafter

CALL_TIMEOUT = 10.0

logger = logging.getLogger(__name__)


class DraftLink:
    """A draft service that may come and go. A process is used only after its vocabulary was compared."""

    def __init__(self, peer: DraftPeer, target: TargetLink, config: CoordinatorConfig):
        self.peer = peer
        self.timeout = config.draft_timeout
        self.cooldown = config.draft_cooldown
        self.info: ModelInfo | None = None
        """Facts of the process that was checked; None while there is none."""
        self._target = target
        self._quiet_until = 0.0
        self._is_away = False
        self._check_wanted = asyncio.Event()
        self._check_wanted.set()

    @property
    def is_usable(self) -> bool:
        return self.info is not None and time.monotonic() >= self._quiet_until

    @property
    def own_drafter(self) -> Drafter | None:
        """What proposes unless a request says otherwise, as far as that is known."""
        return self.info.drafters[0] if self.info is not None and self.info.drafters else None

    def leave_alone(self, error: SpecpairError) -> None:
        """After a failure: nobody asks the draft during the cool-down."""
        if not self._is_away:
            logger.warning("going on without the draft: %s", error.message)
        self._is_away = True
        self._quiet_until = time.monotonic() + self.cooldown

    def welcome(self) -> None:
        """After an answer."""
        if self._is_away:
            logger.info("the draft answers again")
        self._is_away = False

    def confirm(self, instance_id: str) -> None:
        """Raises PeerUnavailableError for a process other than the one checked, and has it checked."""
        if self.info is not None and instance_id == self.info.instance_id:
            return
        self.info = None
        self._check_wanted.set()
        raise PeerUnavailableError("the draft was restarted and is being checked")

    async def check(self) -> None:
        """Compares the vocabularies and takes the draft into use.

        Raises VocabularyMismatchError, or PeerUnavailableError when it does not answer.
        """
        info = await self.peer.info(CALL_TIMEOUT)
        files = None if has_no_model(info) else await self.peer.tokenizer_files(CALL_TIMEOUT)
        tokenizer = None if files is None else await asyncio.to_thread(Tokenizer, files)
        await asyncio.to_thread(check_vocabularies, tokenizer, self._target.tokenizer, info, self._target.info)
        self.info = info
        self._check_wanted.clear()

    async def wait_until_checked(self, within: float) -> None:
        """The first check, with patience. Raises VocabularyMismatchError; an absent draft is only reported."""
        try:
            async with asyncio.timeout(within):
                await self._check_with_patience()
        except TimeoutError:
            logger.warning("the draft at %s did not answer within %g s: serving without it", self.peer.address, within)

    async def watch(self) -> None:
        """Checks the draft whenever that is wanted, for as long as the coordinator lives."""
        while True:
            await self._check_wanted.wait()
            try:
                await self._check_with_patience()
                logger.info("the draft at %s is in use", self.peer.address)
            except VocabularyMismatchError as error:
                logger.error("the draft at %s is not used: %s", self.peer.address, error.message)
                await asyncio.sleep(self.cooldown * 10)
            except Exception:  # whatever it was, the draft is to be taken up again one day
                logger.exception("checking the draft failed")
                await asyncio.sleep(self.cooldown * 10)

    async def _check_with_patience(self) -> None:
        while True:
            try:
                return await self.check()
            except VocabularyMismatchError:
                raise
            except SpecpairError as error:
                logger.debug("the draft cannot be checked: %s", error.message)
            await asyncio.sleep(self.cooldown)
