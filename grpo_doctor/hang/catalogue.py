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
        means="A rank is alive and may not run: it was stopped by a signal or a debugger, or its "
        "control group is frozen.",
        looks_like="State `T` or `t` in /proc, or every thread in state `D` while the freezer says "
        "frozen. The others sleep in their next collective.",
        what_to_do="`kill -CONT PID`, or thaw the group (`attach --confirm` does either and looks "
        "whether the job moves). Then find out who stopped it: Ctrl-Z in its terminal, a debugger "
        "that was left, a batch system that suspends jobs.",
        can_go_on="Yes, as soon as the rank may run again; nothing is lost.",
    ),
    Class(
        "rank-dead",
        means="A rank has ended, by an exception or a signal, and the others still wait for it; or "
        "its program has, and a thread of its own keeps the process alive.",
        looks_like="The process is gone or a zombie; its launcher has not noticed yet, or there is "
        "none. Its exit status, the end of its log and the kernel's messages say how it ended. "
        "Or its main thread has no frame of the program left and waits for its other threads.",
        what_to_do="The others cannot go on: end the job and start it from its last checkpoint. "
        "Fix what ended the rank; the end of its log is in the evidence.",
        can_go_on="No: end the job and start it from its last checkpoint.",
    ),
    Class(
        "rank-missing",
        means="The job waits at its start for a rank that never came: not started, started with "
        "another address or world size, or on a host that cannot reach this one.",
        looks_like="Ranks wait in `init_process_group`, or in a store or barrier, and there are "
        "fewer processes than the world size says.",
        what_to_do="Start the missing rank with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE. "
        "If it runs on another host, attach there, and check that the port can be reached.",
        can_go_on="Yes, if the rank comes before the rendezvous times out.",
    ),
    Class(
        "oom-killed",
        means="The kernel killed a process of the job because memory ran out, on the host or in "
        "the job's control group, or lets it wait until there is some.",
        looks_like="`oom_kill` in the group's memory events has grown, or the kernel's log says "
        "`Out of memory: Killed process`. The process died of SIGKILL with nothing in its log. "
        "Or it sleeps in a function of the kernel's memory control.",
        what_to_do="Raise the memory limit, or need less: less offload to the CPU, fewer workers "
        "of dataloaders and rewards, smaller batches. Then start from the last checkpoint.",
        can_go_on="No, where a process was killed: start from the last checkpoint. Yes, where one"
        " waits for memory and gets it.",
    ),
    Class(
        "memory-swapped",
        means="A rank computes on memory that the host has swapped out: every page comes back from "
        "a disk first.",
        looks_like="Its major page faults grow by hundreds in a second, and part of it is in swap "
        "(`VmSwap` in its status). It is in state `D`, or busy at a line that was fast before.",
        what_to_do="Need less memory on the host: offload less to the CPU, fewer workers of "
        "dataloaders and rewards, fewer ranks on a host; or raise its memory limit.",
        can_go_on="Yes: it goes on, slowly, and at full pace as soon as its memory fits.",
    ),
    Class(
        "collective-mismatch",
        means="At the same place in the order of one process group, ranks call different "
        "collectives, or the same one with other shapes or types, or of another source or target.",
        looks_like="The flight recorders show the same sequence number with another operation or "
        "size on the named rank than on most.",
        what_to_do="Look at the two code places in the evidence: a branch that depends on the "
        "rank or on its data leads to different calls. Move the collective out of the branch.",
        can_go_on="No: the ranks' calls stay out of step. End the job and start it from its last "
        "checkpoint.",
    ),
    Class(
        "collective-skipped",
        means="A rank has left out a collective that the others call, or calls one more: by a "
        "condition, an exception that was caught, or batches that are not the same number.",
        looks_like="The named rank is one or more behind in a group's sequence, or waits at a "
        "later place of the program than the others, and nothing blocks it.",
        what_to_do="Make every rank take the same branch (reduce the condition first, then test "
        "it), give every rank the same number of batches, and do not catch exceptions around "
        "collectives on one rank alone.",
        can_go_on="No: the ranks' calls stay out of step. End the job and start it from its last "
        "checkpoint.",
    ),
    Class(
        "group-order-cycle",
        means="Two or more process groups are used in different orders: each rank waits in a "
        "group for one that waits for it in another.",
        looks_like="The wait-for graph has a cycle over several groups; the code lines of the "
        "cycle are in the verdict. Weight sync between trainer and engine is the usual place.",
        what_to_do="Call the collectives of all groups in one order on every rank, and from one "
        "thread. At weight sync: gather on all ranks first, then send.",
        can_go_on="No: none of them can let go. End the job and start it from its last checkpoint.",
    ),
    Class(
        "p2p-unmatched",
        means="A rank receives what nobody sends, or sends what nobody receives: a wrong peer or "
        "tag, or everybody sends first.",
        looks_like="A rank is in `recv`, `send` or a batch of them; its peer is elsewhere or does "
        "the same towards it.",
        what_to_do="Compare source, destination and tag of the two code places. Let even ranks "
        "send first and odd ranks receive first, or use `batch_isend_irecv`.",
        can_go_on="No: the message will not come. End the job and start it from its last "
        "checkpoint.",
    ),
    Class(
        "weight-sync-blocked",
        means="New weights do not get from the trainer to the rollout engine: one of the two does "
        "not come to the transfer, or waits in another place of it.",
        looks_like="Ranks stand in the weight sync (or in a request to the engine to load weights) "
        "and nothing is transferred between two looks.",
        what_to_do="Look at the engine's log at that time. Check that its group has the size and "
        "address that the trainer expects, and that no generation runs while weights are sent.",
        can_go_on="Only if the side that is missing still comes to the transfer.",
    ),
    Class(
        "reward-blocked",
        means="A rank waits in its reward for something that does not come: an HTTP answer, a "
        "sandbox, a pipe, a queue.",
        looks_like="The rank sleeps in user code of the reward, in a call on a socket or pipe "
        "whose other end does not move either; the others wait in their next collective.",
        what_to_do="Ask the named server or process yourself. Give every call a time limit "
        "(`requests.post(..., timeout=60)`, `proc.wait(timeout=60)`) and a reward for what "
        "times out.",
        can_go_on="Yes, when the answer comes, or the call fails and the reward bears that: fix "
        "the unresponsive service before you end the job.",
    ),
    Class(
        "reward-busy",
        means="A rank computes its reward for much longer than usual: a regular expression that "
        "backtracks, a symbolic proof, a program that does not end.",
        looks_like="The rank uses a whole core at the same lines of the reward in every look.",
        what_to_do="Run rewards in processes with a time limit, which a loop in C obeys as well "
        "(for the bundled trainer `--reward_timeout`), and bound the length of what is checked.",
        can_go_on="Yes, when the computation ends, which may be never.",
    ),
    Class(
        "dataload-blocked",
        means="A rank waits for its next batch: a dataloader worker is dead or waits itself, or "
        "the storage does not answer.",
        looks_like="The rank is in the dataloader's queue; a worker is gone, stopped, or stands in "
        "a read or in a lock that it got by fork.",
        what_to_do="Look at the named worker. Give the DataLoader a `timeout`, start its workers "
        "with `multiprocessing_context='spawn'`, and make /dev/shm large enough.",
        can_go_on="Yes, if what the worker waits for comes; no, if the worker is dead.",
    ),
    Class(
        "storage-blocked",
        means="A rank waits for a file system: a network file system that is away, a device that "
        "does not answer, a FIFO that nobody opens.",
        looks_like="State `D`, or a sleep in open, read, write or fsync of the named file.",
        what_to_do="`stat` the named path from a shell (it will hang too) and repair the mount. "
        "A process in state D cannot be killed before its device answers.",
        can_go_on="Yes, as soon as the storage answers, or somebody opens the FIFO's other end.",
    ),
    Class(
        "rollout-engine-dead",
        means="The process that generates has died and those who wait for its tokens do not know.",
        looks_like="The engine's core is gone or a zombie while its server or the trainer still "
        "waits on its socket; its health address may even answer.",
        what_to_do="Read the end of the engine's log; out of memory is the usual reason (lower "
        "its share of the GPU, or its longest sequence). Start the job from its last checkpoint.",
        can_go_on="No, where it is a part of the job: start from the last checkpoint. A server "
        "can be started again, but what it was asked for is lost.",
    ),
    Class(
        "rollout-engine-stalled",
        means="The process that generates is alive and generates nothing: requests wait for cache "
        "space, for new weights, or its ranks wait for each other.",
        looks_like="Requests run or wait in /metrics and the number of generated tokens does not "
        "grow between two looks, or preemptions grow alone; or one of its processes (front, core, "
        "worker) is stopped.",
        what_to_do="Attach to the engine's process as well. Fewer or shorter sequences at a time, "
        "or more cache space; `kill -CONT` what is stopped; resume what was paused for new weights "
        "(`POST /resume`).",
        can_go_on="Yes, as soon as the engine generates again.",
    ),
    Class(
        "thread-deadlock",
        means="Two threads of one process wait for each other's locks, or a thread for its own.",
        looks_like="Two or more Python threads of the rank stand in `acquire`; none of them runs.",
        what_to_do="Take the locks of the two named code places in one order everywhere, or hold "
        "only one at a time.",
        can_go_on="No: neither thread can let go. End the job and start it from its last "
        "checkpoint.",
    ),
    Class(
        "gil-held",
        means="A call into C keeps Python's global lock while it waits or computes, so that no "
        "other thread of the process runs.",
        looks_like="One thread owns the lock in every look and does not execute Python; the main "
        "one asks for it 200 times a second, or sleeps.",
        what_to_do="Look at the named call: load the library with `ctypes.CDLL` (not `PyDLL`), "
        "release the lock in the extension, or call it in a process of its own.",
        can_go_on="Yes, if the call ends by itself; nothing else ends it.",
    ),
    Class(
        "lock-held",
        means="A process waits for a lock that another one holds: a lock file, or a lock that was "
        "copied by fork while it was held.",
        looks_like="The rank sleeps in flock, tries a lock file or a locked database again and "
        "again, or stands in `acquire` where no thread of its process can release it; /proc/locks "
        "names the holder of a file's lock.",
        what_to_do="End or wait for the named holder; a lock file of a dead process on a network "
        "file system can be removed. After fork, start workers with `spawn`.",
        can_go_on="Yes, as soon as its holder lets go or ends; no, where nobody is left who could: "
        "the lock was copied by fork, or its own thread takes it twice.",
    ),
    Class(
        "child-stuck",
        means="A rank waits for a process that it has started and that does not end or answer.",
        looks_like="The rank is in wait or in a pool's get, or in a call with nobody at the other "
        "end; the child sleeps, is stopped, or is dead and the pool does not know.",
        what_to_do="Look at the named child (its state is in the table). Give the wait a time "
        "limit; use `concurrent.futures.ProcessPoolExecutor`, which notices dead workers.",
        can_go_on="Yes, when the child ends or answers: end it, and the wait for it is over. "
        "What the rank does then is its own code's choice.",
    ),
    Class(
        "cpu-starved",
        means="A rank would run and gets no core: a quota, a nice level, cores shared with others, "
        "or a pinning that puts several ranks on one.",
        looks_like="State `R` with hardly any CPU time and much waiting to run; throttled time of "
        "its control group grows.",
        what_to_do="Raise the quota, undo the pinning, or end what else runs there. "
        "OMP_NUM_THREADS times ranks should not be more than the cores.",
        can_go_on="Yes: it goes on slowly, and at full pace as soon as it gets cores.",
    ),
    Class(
        "network-silent",
        means="Ranks wait for bytes of each other that do not arrive: a link, a firewall, or a "
        "host that has gone.",
        looks_like="All ranks are in the same collective, nobody is behind, and connections have "
        "unsent or unanswered data.",
        what_to_do="Check the link between the named hosts: `ss -tie`, the switch, NCCL_IB_HCA and "
        "NCCL_SOCKET_IFNAME. Attach on the other hosts as well.",
        can_go_on="Yes, if bytes flow again before the process group times out.",
    ),
    Class(
        "gpu-fault",
        means="A GPU has reported an error or fallen off the bus, or does not finish a kernel; "
        "what is queued on it never ends.",
        looks_like="`NVRM: Xid` in the kernel's log at that time, NVML does not know the GPU any "
        "more, or the flight recorders show a collective that its peers have finished and it has "
        "not. Or its host waits for it while no collective is queued.",
        what_to_do="Take the host out of the job and start from the last checkpoint elsewhere; "
        "the Xid number tells whether a reset is enough or the GPU must be replaced.",
        can_go_on="No: end the job and start it elsewhere from its last checkpoint.",
    ),
    Class(
        "user-code-blocked",
        means="A rank waits in user code outside of rewards, data, storage and weight sync: a "
        "sleep, a queue, an event, an answer.",
        looks_like="The rank sleeps at the same line of user code in every look; the others wait "
        "in their next collective.",
        what_to_do="Look at the named line: what should wake it up? Give the wait a time limit.",
        can_go_on="Yes, when what that line waits for comes.",
    ),
    Class(
        "user-code-busy",
        means="A rank computes in user code for much longer than usual, and the others wait.",
        looks_like="The rank uses a core at the same lines of user code in every look.",
        what_to_do="Look at the named lines; `py-spy record -p PID` shows where the time goes. It "
        "may still end: the verdict says for how long it has been at it.",
        can_go_on="Yes, when the computation ends, which may be never.",
    ),
    Class(
        "unknown",
        means="The job does not move and what was seen does not tell why, or tells several things.",
        looks_like="What could not be seen is listed with what would make it visible.",
        what_to_do="Run the one command that the verdict names; it settles what is open.",
        can_go_on="That is open. Keep the evidence before you end it: grpo-doctor attach -o DIR",
    ),
)
BY_NAME = {entry.name: entry for entry in CLASSES}
