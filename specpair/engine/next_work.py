"""The work with which a sequence goes on without the event loop. Device thread only."""

import logging

from specpair.engine.failures import check_device
from specpair.engine.work import Work

log = logging.getLogger(__name__)


def next_work(work: Work) -> Work | None:
    """The work of the call that waits for this one, if it can begin at once."""
    if work.error is not None or work.future.done():
        return None
    try:
        following = work.go_on()
    except Exception as error:  # the event loop may be able to
        check_device(error)
        log.exception("the device thread could not go on by itself")
        return None
    if following is not None:
        following.future = work.future.get_loop().create_future()
    return following
