"""The works with which sequences go on without the event loop. Device thread only."""

import logging
from collections.abc import Callable, Sequence

from specpair.engine.failures import check_device
from specpair.engine.going_on_plain import GoingOnPlain
from specpair.engine.work import Work

log = logging.getLogger(__name__)


def following_works(works: Sequence[Work], here: int, going_on_plain: GoingOnPlain, fixed_cost: float) -> list[Work]:
    """The works that follow on those that are done: of the calls that wait for them, and of sequences that `here`
    other works, and these, would leave behind. A pass takes at least `fixed_cost` seconds."""
    following: list[Work] = []
    alone: list[Work] = []
    for work in works:
        if work.error is not None or work.future.done():
            continue
        if (begun := _begun(work, work.go_on)) is not None:
            following.append(begun)
        elif work.may_go_on_plain:
            alone.append(work)
    going_on_plain.add(works)
    if alone and going_on_plain.pays(alone, here + len(following), fixed_cost):
        plain = [begun for work in alone if (begun := _begun(work, work.go_on_plain)) is not None]
        for begun in plain:
            begun.went_on_plain = True
        following += plain
    return following


def _begun(work: Work, go_on: Callable[[], Work | None]) -> Work | None:
    try:
        following = go_on()
    except Exception as error:  # the event loop may be able to
        check_device(error)
        log.exception("the device thread could not go on by itself")
        return None
    if following is not None:
        following.future = work.future.get_loop().create_future()
    return following
