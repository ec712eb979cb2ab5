"""The ways in which a spinning job is stuck, slow or healthy, and what a right answer is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.spinning import faults

Truth = Literal["dead", "slow", "healthy"]
Strike = Callable[[faults.Scene], None]
# What cannot be told from a long kernel without a recording may be called slow, never healthy.
NOT_HEALTHY = ("stuck", "slow", "dead", "unknown")
ALIVE = ("healthy", "slow", "unknown")
LINK = ("network-silent", "gpu-fault", "collective-hung", "unknown")


@dataclass(frozen=True)
class Case:
    """One job.

    Attributes:
        truth: whether it will ever get on.
        classes: right ones; empty where any is, as of a job that is healthy.
        names: whether a right answer names the rank that is struck; else it names nobody.
        strike: runs in the rank that is struck, in `phase`; `everyone`: in all; `again`: in every
            later step too.
        outside: what the bench does to the struck rank, or to the job's links.
        recorded: whether torch has written its recordings, as after a timeout.
        hidden: whether reading other processes' memory is refused, as in many containers.
        age_s: from the effect to the attach.
        proxies: threads of NCCL's in each rank, which spin for other hosts.
        named: whether torch names its threads, as since 2.6.
        counted: whether a variable of the loop says which step it is at.
        least_ranks: three where only a majority tells who is to blame.
    """

    name: str
    truth: Truth
    classes: tuple[str, ...] = ()
    names: bool = True
    phase: str = "reward"
    strike: Strike | None = None
    everyone: bool = False
    again: bool = False
    outside: Literal["", "break links", "stop"] = ""
    recorded: bool = False
    hidden: bool = False
    judge: bool = False
    age_s: float = 7.0
    kernel_s: float = 0.003
    proxies: int = 0
    named: bool = True
    least_ranks: int = 2
    counted: bool = True
    states: tuple[str, ...] = ()

    @property
    def allowed(self) -> tuple[str, ...]:
        """States that are right."""
        if self.states:
            return self.states
        return NOT_HEALTHY if self.truth == "dead" else ALIVE


CASES: dict[str, Case] = {}


def _add(name: str, truth: Truth, *classes: str, **options: object) -> None:
    CASES[name] = Case(name, truth, classes, **options)  # type: ignore[arg-type]


_STUCK = ("stuck",)
_NAMED = ("stuck", "slow")
_REWARD = ("reward-blocked", "user-code-blocked")
_BUSY = ("reward-busy", "user-code-busy")

# Links that are dead: all have joined, and none can be blamed.
for _phase, _place in (
    ("sync", "barrier"), ("broadcast", "synchronize"), ("update", "item"), ("logprob", "item")
):  # fmt: skip
    for _recorded in (False, True):
        _add(
            f"links dead, all in {_place} of {_phase}{', recorded' if _recorded else ''}",
            "dead", *LINK, names=False, phase=_phase, outside="break links", recorded=_recorded,
            proxies=1 if _phase == "update" else 0,
        )  # fmt: skip

for _phase, _place in (("sync", "barrier"), ("update", "item")):
    _add(f"links dead, all in {_place}, torch 2.5", "dead", *LINK, names=False, phase=_phase,
         outside="break links", named=False)  # fmt: skip

# A host that does something else for ever.
_add("polls for ever", "dead", *_REWARD, strike=faults.ask_server_for_ever, states=_NAMED)
_add("polls for ever, others in barrier", "dead", "weight-sync-blocked", "user-code-blocked",
     phase="sync", strike=faults.ask_server_for_ever, states=_NAMED)  # fmt: skip
_add("polls for ever, recorded", "dead", *_REWARD, strike=faults.ask_server_for_ever,
     states=_NAMED, recorded=True)  # fmt: skip
_add("polls for ever, torch 2.5", "dead", *_REWARD, strike=faults.ask_server_for_ever,
     states=_NAMED, named=False)  # fmt: skip
_add("computes for ever in Python", "dead", *_BUSY, strike=faults.compute_for_ever, states=_NAMED)
_add("computes for ever in a library", "dead", *_BUSY, strike=faults.multiply_for_ever,
     states=_NAMED)  # fmt: skip
_add("pattern that backtracks", "dead", *_BUSY, "gil-held", strike=faults.match_for_ever,
     states=_NAMED)  # fmt: skip
_add("loop in the user's C", "dead", *_BUSY, strike=faults.solve_in_c, states=_NAMED)
_add("reward server is silent", "dead", *_REWARD, strike=faults.score_with_judge, judge=True,
     states=_NAMED)  # fmt: skip
_add("lock is never given back", "dead", "thread-deadlock", "lock-held", *_REWARD,
     strike=faults.take_lock, states=_NAMED)  # fmt: skip
_add("file that nobody writes", "dead", "storage-blocked", *_REWARD, strike=faults.read_fifo,
     states=_NAMED)  # fmt: skip
_add("program that never ends", "dead", "child-stuck", *_REWARD, strike=faults.run_sandbox,
     states=_NAMED)  # fmt: skip
_add("queue without a producer", "dead", "dataload-blocked", "thread-deadlock",
     "user-code-blocked", "rollout-engine-stalled", phase="rollout", strike=faults.next_batch,
     states=_NAMED)  # fmt: skip
_add("stopped", "dead", "rank-stopped", phase="update", outside="stop", states=_STUCK)
_add("stopped, proxies spin", "dead", "rank-stopped", phase="update", outside="stop",
     states=_STUCK, proxies=1)  # fmt: skip
_add("killed", "dead", "rank-dead", phase="update", strike=faults.be_ended,
     states=("stuck", "dead"))  # fmt: skip
_add("GIL held in a C call", "dead", "gil-held", *_REWARD, strike=faults.hold_gil, states=_NAMED)
_add("sleeps in an exception handler", "dead", *_REWARD, strike=faults.retry_in_handler,
     states=_NAMED)  # fmt: skip
_add("waits for an event in a loop", "dead", "thread-deadlock", "user-code-blocked",
     phase="update", strike=faults.wait_in_loop, states=_NAMED)  # fmt: skip

# A device that does not answer its own host.
for _recorded in (False, True):
    _add(f"kernel of one GPU hangs{', recorded' if _recorded else ''}", "dead", "gpu-fault",
         *(() if _recorded else ("unknown",)), names=_recorded, phase="update",
         strike=faults.hang_kernel, recorded=_recorded)  # fmt: skip
_add("kernel of one GPU hangs, GIL held", "dead", "gpu-fault", "gil-held", "unknown",
     phase="reward", names=False, strike=faults.spin_with_gil)  # fmt: skip
_add("barrier left out, recorded", "dead", "collective-skipped", "collective-mismatch",
     "group-order-cycle", phase="sync", strike=faults.skip_barrier, recorded=True,
     least_ranks=3)  # fmt: skip
_add("all spin, stacks hidden", "dead", "unknown", *LINK, names=False, phase="update",
     outside="break links", hidden=True)  # fmt: skip
_add("polls for ever, stacks hidden", "dead", phase="reward", hidden=True,
     strike=faults.ask_server_for_ever)  # fmt: skip

# Alive.
_add("healthy, torch 2.5", "healthy", named=False)
_add("long kernel on all, torch 2.5", "slow", phase="update", strike=faults.long_kernel,
     everyone=True, names=False, named=False)  # fmt: skip
_add("healthy, fast", "healthy", kernel_s=0.001)
_add("healthy, no variable changes", "healthy", counted=False)
_add("healthy, steps of seconds", "healthy", kernel_s=0.15)
_add("healthy, proxies", "healthy", proxies=1)
_add("long kernel on all", "slow", phase="update", strike=faults.long_kernel, everyone=True,
     names=False)  # fmt: skip
_add("long kernel on one", "slow", phase="update", strike=faults.long_kernel)
_add("long rollout on one", "slow", phase="rollout", strike=faults.long_rollout)
_add("host work on all", "healthy", phase="reward", strike=faults.host_work, everyone=True,
     again=True)  # fmt: skip
_add("checkpoint on one", "slow", phase="sync", strike=faults.save_checkpoint)
_add("compiles on one", "slow", phase="update", strike=faults.compile_kernels)
_add("evaluates on one", "slow", phase="sync", strike=faults.evaluate)
_add("healthy, stacks hidden", "healthy", hidden=True)
