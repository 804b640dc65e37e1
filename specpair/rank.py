"""A rank that follows, as a process: `python -m specpair.rank`, started by the leader; or started by torchrun.

It has no port of its own and serves nobody. It ends with its leader: told to, or when the leader's pipe or connection
closes.
"""

import json
import logging
import os
import signal
import sys
import threading
import time
from typing import Any

from specpair.engine_config import EngineConfig
from specpair.errors import SpecpairError
from specpair.models.load_shard import load_follower
from specpair.server.logs import configure_logging
from specpair.server.watchdog import Watchdog, exit_at_once
from specpair.sharding.config import Membership
from specpair.sharding.group import GroupLostError

ORPHAN_SECONDS = 5.0
"""After its leader's pipe has closed: time to hear of the end in order."""
WAITING_SECONDS = 30.0
"""A rank that was asked to end by a signal waits so long for the leader, whose calls may be running."""
LOOK_SECONDS = 0.5

log = logging.getLogger("specpair.rank")  # not __main__


def run_rank(config: EngineConfig, member: Membership) -> None:
    """Follows until the leader ends the group, and ends the process: with status 0, or 1 if the group was lost."""
    watchdog = Watchdog(WAITING_SECONDS)

    def end(number: int, frame: object) -> None:
        if watchdog.is_armed:
            watchdog.exit("a second signal came")
        log.info("rank %d waits for the leader to end", member.rank)
        watchdog.arm()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    outcome: list[int] = []
    worker = threading.Thread(target=lambda: outcome.append(follow(config, member)), name="device", daemon=True)
    worker.start()
    while worker.is_alive():
        worker.join(LOOK_SECONDS)  # in between signals are handled
    logging.shutdown()
    os._exit(outcome[0] if outcome else 1)  # what torch cleans up after a lost group may hang


def follow(config: EngineConfig, member: Membership) -> int:
    """Loads and obeys; returns the exit status."""
    try:
        follower = load_follower(config, member)
        log.info("rank %d of %d follows", member.rank, member.size)
        follower.follow()
    except (SpecpairError, GroupLostError) as error:
        log.error("rank %d of %d ends: %s", member.rank, member.size, error)
        return 1
    except Exception:
        log.exception("rank %d of %d ends", member.rank, member.size)
        return 1
    log.info("rank %d of %d stopped", member.rank, member.size)
    return 0


def end_with_pipe() -> None:
    """Ends the process some time after the leader's pipe has closed."""
    sys.stdin.buffer.read()
    time.sleep(ORPHAN_SECONDS)
    log.error("the leader is gone")
    exit_at_once()


def main() -> None:
    task: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    os.chdir(task["folder"])
    configure_logging(task["log_format"], task["log_level"])
    threading.Thread(target=end_with_pipe, name="leader's pipe", daemon=True).start()
    run_rank(EngineConfig(**task["engine"]), Membership(**task["member"]))


if __name__ == "__main__":
    main()
