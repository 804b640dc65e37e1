"""The model services behind their addresses, and the sequences of requests there, which go on when an instance fails.

A pool finds the instances of a service. Each has a link, which follows its health, compares it with the pair before it
is used, and speaks to it through a peer. A session is one sequence, and goes from one instance to another as they fail.
"""

from coordinator.peers.answers import CallTimes, Proposed, Scores, Verdict
from coordinator.peers.connecting import connect_drafts, connect_targets
from coordinator.peers.draft_session import DraftSession
from coordinator.peers.drafts import Drafts
from coordinator.peers.pool import Pool
from coordinator.peers.scoring import score_prompt
from coordinator.peers.target_session import TargetSession
from coordinator.peers.targets import Targets

__all__ = [
    "CallTimes",
    "DraftSession",
    "Drafts",
    "Pool",
    "Proposed",
    "Scores",
    "TargetSession",
    "Targets",
    "Verdict",
    "connect_drafts",
    "connect_targets",
    "score_prompt",
]
