"""The classes of a verdict: what each means, what it looks like, what to do. docs/hang.md is made
from this table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Class:
    """A class of verdict. All but `name` are sentences for the user."""

    name: str
    means: str
    looks_like: str
    what_to_do: str
    can_go_on: str  # whether the running job can be saved, and by what


CLASSES: tuple[Class, ...] = (
    Class(
        "rank-stopped",
        means="A rank is alive but cannot run: a signal or a debugger stopped it, or its control "
        "group is frozen.",
        looks_like="State `T` or `t` in /proc, or every thread in state `D` while the freezer "
        "reports frozen. The others sleep in their next collective.",
        what_to_do="Run `kill -CONT PID`, or thaw the group (the verdict prints the command). Then "
        "find out what stopped it: Ctrl-Z in its terminal, an abandoned debugger, or a batch "
        "system that suspends jobs.",
        can_go_on="Yes, as soon as the rank is resumed; nothing is lost.",
    ),
    Class(
        "rank-dead",
        means="A rank exited with an exception or a signal, and the others still wait for it. Or "
        "its program ended, and one of its own threads keeps the process alive.",
        looks_like="The process is gone or a zombie, and its launcher has not noticed yet or does "
        "not exist. Its exit status, the end of its log and the kernel log show how it ended. Or "
        "its main thread has left the program and waits for its other threads.",
        what_to_do="The others cannot continue: end the job and restart it from its last "
        "checkpoint. Fix what ended the rank; the end of its log is in the evidence.",
        can_go_on="No: end the job and restart it from its last checkpoint.",
    ),
    Class(
        "rank-missing",
        means="The job waits at startup for a rank that never arrived: it was not started, was "
        "started with another address or world size, or is on a host that cannot reach this one.",
        looks_like="Ranks wait in `init_process_group`, in a store or in a barrier, and there are "
        "fewer processes than the world size.",
        what_to_do="Start the missing rank with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE. "
        "If it runs on another host, run attach there, and check that the port can be reached.",
        can_go_on="Yes, if the rank arrives before the rendezvous times out.",
    ),
    Class(
        "oom-killed",
        means="The host or the job's control group ran out of memory: the kernel killed a process "
        "of the job, or makes it wait until memory is free.",
        looks_like="`oom_kill` in the control group's memory.events increased, or the kernel log "
        "says `Out of memory: Killed process`. The process died of SIGKILL with nothing in its "
        "log. Or it sleeps in the kernel's memory control.",
        what_to_do="Raise the memory limit, or use less: offload less to the CPU, use fewer "
        "dataloader and reward workers, or smaller batches. Then restart from the last checkpoint.",
        can_go_on="No, if a process was killed: restart from the last checkpoint. Yes, if a "
        "process waits for memory and gets it.",
    ),
    Class(
        "memory-swapped",
        means="A rank computes on memory that the host has swapped out: every page is read back "
        "from disk first.",
        looks_like="Its major page faults grow by hundreds per second, and part of its memory is "
        "in swap (`VmSwap` in its status). It is in state `D`, or busy at a line that was fast "
        "before.",
        what_to_do="Use less host memory: offload less to the CPU, use fewer dataloader and "
        "reward workers, or fewer ranks per host. Or raise its memory limit.",
        can_go_on="Yes: it continues slowly, and runs at full speed once its memory fits.",
    ),
    Class(
        "collective-mismatch",
        means="At the same position in one process group, ranks call different collectives, or "
        "the same one with a different shape, dtype, source or target.",
        looks_like="In the flight recorders, the named rank has another operation or size at the "
        "same sequence number than most ranks.",
        what_to_do="Compare the two code locations in the evidence: a branch that depends on the "
        "rank or on its data leads to different calls. Move the collective out of the branch.",
        can_go_on="No: the ranks' calls stay out of step. End the job and restart it from its "
        "last checkpoint.",
    ),
    Class(
        "collective-skipped",
        means="A rank skipped a collective that the others call, or calls an extra one: because "
        "of a condition, a caught exception, or an unequal number of batches.",
        looks_like="The named rank is behind in a group's sequence, or waits at a later point of "
        "the program than the others, and nothing blocks it.",
        what_to_do="Make every rank take the same branch (reduce the condition first, then test "
        "it), and give every rank the same number of batches. Do not catch exceptions around "
        "collectives on one rank only.",
        can_go_on="No: the ranks' calls stay out of step. End the job and restart it from its "
        "last checkpoint.",
    ),
    Class(
        "group-order-cycle",
        means="Ranks use two or more process groups in different orders: each rank waits in one "
        "group for a rank that waits in another.",
        looks_like="The wait-for graph has a cycle over several groups; the verdict shows the "
        "code lines of the cycle. It usually happens at the weight sync between trainer and "
        "engine.",
        what_to_do="Call the collectives of all groups in one order on every rank, and from one "
        "thread. At weight sync, gather on all ranks first, then send.",
        can_go_on=(
            "No: none of the ranks can leave the cycle. End the job and restart it from "
            "its last checkpoint."
        ),
    ),
    Class(
        "p2p-unmatched",
        means="A rank receives from a rank that never sends, or sends to one that never receives: "
        "a wrong peer or tag, or all ranks send first.",
        looks_like="A rank is in `recv`, `send` or a batch of them; its peer is in another call, "
        "or makes the same call to it.",
        what_to_do="Compare source, destination and tag at the two code locations. Let even ranks "
        "send first and odd ranks receive first, or use `batch_isend_irecv`.",
        can_go_on="No: the message will not arrive. End the job and restart it from its last "
        "checkpoint.",
    ),
    Class(
        "weight-sync-blocked",
        means="New weights do not reach the rollout engine: the trainer or the engine does not "
        "join the transfer, or waits at another point of it.",
        looks_like="Ranks are in the weight sync (or in a request to the engine to load weights), "
        "and nothing is transferred between two samples.",
        what_to_do="Read the engine's log at that time. Check that its group has the size and "
        "address that the trainer expects, and that the engine does not generate while weights "
        "are sent.",
        can_go_on="Only if the missing side still joins the transfer.",
    ),
    Class(
        "reward-blocked",
        means="A rank waits in its reward for something that does not arrive: an HTTP response, a "
        "sandbox, a pipe or a queue.",
        looks_like="The rank sleeps in the reward's user code, in a call on a socket or pipe "
        "whose other end makes no progress either. The others wait in their next collective.",
        what_to_do="Query the named server or process yourself. Give every call a timeout "
        "(`requests.post(..., timeout=60)`, `proc.wait(timeout=60)`), and a reward for calls that "
        "time out.",
        can_go_on="Yes, if the response arrives, or if the call fails and the reward handles "
        "that: fix the unresponsive service before you end the job.",
    ),
    Class(
        "reward-busy",
        means="A rank computes its reward for much longer than usual: a regular expression that "
        "backtracks, a symbolic proof, or a program that never ends.",
        looks_like="The rank uses a whole core at the same lines of the reward in every sample.",
        what_to_do="Run rewards in processes with a timeout, which also stops a loop in C "
        "(bundled trainer: `--reward_timeout`). Limit the length of the text that is checked.",
        can_go_on="Yes, if the computation ends, which may be never.",
    ),
    Class(
        "dataload-blocked",
        means="A rank waits for its next batch: a dataloader worker is dead or blocked, or the "
        "storage does not respond.",
        looks_like="The rank is in the dataloader's queue; a worker is gone, stopped, or blocked "
        "in a read or on a lock inherited through fork.",
        what_to_do="Inspect the named worker. Give the DataLoader a `timeout`, start its workers "
        "with `multiprocessing_context='spawn'`, and make /dev/shm large enough.",
        can_go_on="Yes, if the worker gets what it waits for; no, if the worker is dead.",
    ),
    Class(
        "storage-blocked",
        means="A rank waits for a file system: an unreachable network file system, a device that "
        "does not respond, or a FIFO that no process opens.",
        looks_like="State `D`, or a sleep in open, read, write or fsync of the named file.",
        what_to_do="Run `stat` on the named path from a shell (it will hang too) and repair the "
        "mount. A process in state D cannot be killed before its device responds.",
        can_go_on=(
            "Yes, as soon as the storage responds, or a process opens the FIFO's other end."
        ),
    ),
    Class(
        "rollout-engine-dead",
        means=(
            "The process that generates has died, and the processes that wait for its tokens "
            "have not noticed."
        ),
        looks_like="The engine core is gone or a zombie while its server or the trainer still "
        "waits on its socket; its health endpoint may even respond.",
        what_to_do="Read the end of the engine's log. The usual cause is out of memory: lower its "
        "share of the GPU, or its maximum sequence length. Restart the job from its last "
        "checkpoint.",
        can_go_on="No, if the engine is part of the job: restart from the last checkpoint. A "
        "server can be restarted, but its pending requests are lost.",
    ),
    Class(
        "rollout-engine-stalled",
        means="The generating process is alive but generates nothing: requests wait for cache "
        "space or for new weights, or its ranks wait for each other.",
        looks_like="Requests run or wait in /metrics and the token count does not grow between "
        "two samples, or only preemptions grow. Or one of its processes (front end, core, worker) "
        "is stopped.",
        what_to_do="Run attach on the engine's process as well. Use fewer or shorter sequences at "
        "a time, or more cache space. Run `kill -CONT` on a stopped process; resume an engine "
        "that was paused for new weights (`POST /resume`).",
        can_go_on="Yes, as soon as the engine generates again.",
    ),
    Class(
        "rollout-engine-paused",
        means="The rollout engine was paused while new weights are sent, and nothing has "
        "resumed it: requests wait in it, or are not even counted.",
        looks_like="The engine answers `is_paused: true` (vLLM: `/is_paused`), no token comes out "
        "between two samples, and its core waits for work. A rank waits for the response.",
        what_to_do="Resume it (vLLM: `POST /resume`), then find what ended the transfer of weights "
        "before that call: an error or a return between pause and resume. Call it in a `finally` "
        "block.",
        can_go_on="Yes, as soon as it is resumed, with the weights that it has by then.",
    ),
    Class(
        "thread-deadlock",
        means=(
            "Two threads of one process wait for each other's locks, or a thread waits for "
            "its own lock."
        ),
        looks_like="Two or more Python threads of the rank are in `acquire`; none of them runs.",
        what_to_do="Take the locks at the two named code locations in one order everywhere, or "
        "hold only one at a time.",
        can_go_on="No: neither thread can release its lock. End the job and restart it from its "
        "last checkpoint.",
    ),
    Class(
        "gil-held",
        means="A call into C keeps Python's global interpreter lock (GIL) while it waits or "
        "computes, so no other thread of the process runs.",
        looks_like="One thread owns the GIL in every sample and does not execute Python. The main "
        "thread requests it 200 times per second, or sleeps.",
        what_to_do="Check the named call: load the library with `ctypes.CDLL` (not `PyDLL`), "
        "release the GIL in the extension, or call it in a separate process.",
        can_go_on="Yes, if the call returns; nothing else can end it.",
    ),
    Class(
        "lock-held",
        means="A process waits for a lock that another process holds: a lock file, or a lock that "
        "fork copied while it was held.",
        looks_like="The rank sleeps in flock, or retries a lock file or a locked database. Or it "
        "is in `acquire`, and no thread of its process can release the lock. /proc/locks names "
        "the holder of a file lock.",
        what_to_do="End the named holder or wait for it. A lock file that a dead process left on "
        "a network file system can be removed. After fork, start workers with `spawn`.",
        can_go_on="Yes, as soon as the holder releases the lock or exits. No, if fork copied the "
        "lock or its own thread takes it twice: then no thread can release it.",
    ),
    Class(
        "child-stuck",
        means="A rank waits for a process that it started and that does not exit or respond.",
        looks_like="The rank is in wait or in a pool's get, or in a call with no process at the "
        "other end. The child sleeps, is stopped, or is dead without the pool noticing.",
        what_to_do="Inspect the named child (its state is in the table). Give the wait a timeout. "
        "Use `concurrent.futures.ProcessPoolExecutor`, which notices dead workers.",
        can_go_on="Yes: when the child exits or responds, the rank resumes; kill the child to end "
        "the wait. What happens next depends on how your code handles the failure.",
    ),
    Class(
        "cpu-starved",
        means="A rank is ready to run but gets no core: because of a quota, a nice level, cores "
        "shared with other processes, or CPU pinning that puts several ranks on one core.",
        looks_like="State `R` with very little CPU time and a long time waiting to run; the "
        "throttled time of its control group grows.",
        what_to_do="Raise the quota, undo the pinning, or end the other processes there. "
        "OMP_NUM_THREADS times the number of ranks should not exceed the number of cores.",
        can_go_on="Yes: it continues slowly, and runs at full speed as soon as it gets cores.",
    ),
    Class(
        "network-silent",
        means="Ranks wait for data from each other that does not arrive: because of a link, a "
        "firewall, or a host that has gone.",
        looks_like="All ranks are in the same collective, no rank is behind, and connections have "
        "unsent or unacknowledged data.",
        what_to_do="Check the link between the named hosts: `ss -tie`, the switch, NCCL_IB_HCA "
        "and NCCL_SOCKET_IFNAME. Run attach on the other hosts as well.",
        can_go_on="Yes, if data flows again before the process group times out.",
    ),
    Class(
        "gpu-fault",
        means="A GPU reported an error, fell off the bus, or does not finish a kernel; the work "
        "queued on it never ends.",
        looks_like="`NVRM: Xid` in the kernel log at that time, or NVML no longer finds the GPU. "
        "Or the flight recorders show a collective that its peers finished and it did not. Or its "
        "host waits for it while no collective is queued.",
        what_to_do="Take the host out of the job and restart from the last checkpoint elsewhere. "
        "The Xid number shows whether a reset is enough or the GPU must be replaced.",
        can_go_on="No: end the job and restart it elsewhere from its last checkpoint.",
    ),
    Class(
        "user-code-blocked",
        means="A rank waits in user code outside rewards, data loading, storage and weight sync: "
        "a sleep, a queue, an event or a response.",
        looks_like="The rank sleeps at the same line of user code in every sample; the others "
        "wait in their next collective.",
        what_to_do="Check the named line: what should wake it up? Give the wait a timeout.",
        can_go_on="Yes, if the event that this line waits for happens.",
    ),
    Class(
        "user-code-busy",
        means="A rank computes in user code for much longer than usual, and the others wait.",
        looks_like="The rank uses a core at the same lines of user code in every sample.",
        what_to_do="Check the named lines; `py-spy record -p PID` shows where the time goes. It "
        "may still end: the verdict shows how long it has been running.",
        can_go_on="Yes, if the computation ends, which may be never.",
    ),
    Class(
        "unknown",
        means="The job makes no progress, and the evidence shows no cause, or several.",
        looks_like="The verdict lists the missing evidence and how to collect it.",
        what_to_do="Run the one command that the verdict names; it settles the open question.",
        can_go_on="Unknown. Keep the evidence before you end the job: grpo-doctor attach -o DIR",
    ),
)
BY_NAME = {entry.name: entry for entry in CLASSES}
