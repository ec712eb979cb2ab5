"""Whether a process waits for an answer from outside of what was seen. Pure."""

from __future__ import annotations

from grpo_doctor.hang.model.scene import Actor, Scene

ASKS = ("socket-receive", "socket-connect", "socket-send")


def asks_strangers(scene: Scene, actor: Actor) -> bool:
    """Whether the other end of one of its connections is no process of the job: what it was asked
    for may be worked out there.
    """
    asks = [row for row in actor.blocked if row.kind in ASKS]
    return any(not row.peers or not scene.by_pid.keys() >= set(row.peers) for row in asks)
