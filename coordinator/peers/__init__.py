"""Connections to draft and target instances, and the sequences there, which survive the failure of an instance.

A pool finds the instances of a service. Each instance has a link: it follows the health checks, compares the instance
with the pair before use, and calls it through a peer. A session is one sequence; it moves to another instance if its
own fails.
"""

from coordinator.peers.answers import CallTimes, DraftShare, Proposed, RunCounts, Verdict, no_time, time_until_now
from coordinator.peers.beam_answers import TreeRows
from coordinator.peers.beam_draft import BeamDraftSession
from coordinator.peers.beam_target import BeamTargetSession
from coordinator.peers.connecting import connect_drafts, connect_targets
from coordinator.peers.draft_session import DraftSession
from coordinator.peers.drafts import Drafts
from coordinator.peers.own_order import NO_ORDER, OwnOrder, run_within
from coordinator.peers.pool import Pool
from coordinator.peers.scoring import score_prompt
from coordinator.peers.target_session import TargetSession
from coordinator.peers.targets import Targets

__all__ = [
    "NO_ORDER",
    "BeamDraftSession",
    "BeamTargetSession",
    "CallTimes",
    "DraftSession",
    "DraftShare",
    "Drafts",
    "OwnOrder",
    "Pool",
    "Proposed",
    "RunCounts",
    "TargetSession",
    "Targets",
    "TreeRows",
    "Verdict",
    "connect_drafts",
    "connect_targets",
    "no_time",
    "run_within",
    "score_prompt",
    "time_until_now",
]
