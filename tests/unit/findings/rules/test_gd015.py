from __future__ import annotations

from grpo_doctor_reports.schema.trajectories import Spread, Trajectories
from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import HEALTHY, counted, named, rows, run, with_knobs
from tests.unit.findings.rules.served import beside_servers, served


def engine(
    running: float,
    waiting: float,
    full: float,
    *,
    memory_gib: tuple[float, float] | None = (70.0, 72.0),
) -> TraceBuilder:
    """An engine with so many requests in the mean; the peaks are twice that."""
    knobs = with_knobs(vllm__max_num_seqs=16, train__grad_accumulation=4)
    return counted(
        run(knobs=knobs, memory_gib=memory_gib),
        {"engine/running_requests_mean": running, "engine/running_requests_peak": 2 * running,
            "engine/waiting_requests_mean": waiting, "engine/waiting_requests_peak": 2 * waiting,
            "engine/kv_cache_peak_pct": full},
    )  # fmt: skip


def requests_of_trajectories() -> TraceBuilder:
    build = engine(8.0, 24.0, 30.0)
    build.trajectories = Trajectories(
        states={"engine queue": Spread(total=7.0), "decode": Spread(total=3.0)}
    )
    return build


def a_servers_slots_are_its_own_setting() -> TraceBuilder:
    build = engine(6.0, 24.0, 30.0)
    build.knobs["vllm.mode"] = "server"
    return build


def where_no_flag_rolls_out_more_it_is_advised_in(known: bool) -> TraceBuilder:
    build = engine(6.0, 0.0, 10.0)
    if not known:
        del build.knobs["train.grad_accumulation"]
    build.framework = "unknown"
    return build


SLOTS = ("vllm", "serve", "m", "--max-num-seqs", "16")


def queueing(
    *,
    running: float = 16.0,
    waiting: float = 48.0,
    full: float | None = 30.0,
    command: tuple[str, ...] = SLOTS,
    pid: int | None = 700,
    phases: dict[str, float] = HEALTHY,
    memory_gib: tuple[float, float] | None = (70.0, 72.0),
) -> TraceBuilder:
    """64 requests throughout each rollout."""
    cache = {} if full is None else {"kv_cache": full}
    return served(
        beside_servers(phases, memory_gib=memory_gib), pid=pid, command=command,
        requests_running=running, requests_waiting=waiting, **cache,
    )  # fmt: skip


def an_engine_within_the_ranks_is_no_server() -> TraceBuilder:
    build = queueing()
    build.knobs["vllm.mode"] = "colocate"
    return build


RUNS = {
    "sick": lambda: engine(8.0, 24.0, 30.0),
    "well": lambda: engine(64.0, 0.0, 60.0),
    "on a cpu it is not severe": lambda: engine(8.0, 24.0, 30.0, memory_gib=None),
    "requests that wait with slots free wait for their first": lambda: engine(6.0, 24.0, 30.0),
    "a full cache is another rules": lambda: engine(8.0, 24.0, 95.0),
    "too few requests are a question": lambda: engine(6.0, 0.0, 10.0),
    "the few requests that wait are counted": lambda: engine(6.0, 0.25, 10.0),
    "too few requests on a cpu are what it can take": lambda: engine(6.0, 0.0, 10.0,
        memory_gib=None),
    "without counters it says what records them": run,
    **rows("a tenth of the requests has to wait 1", lambda waiting: engine(4.5, waiting, 30.0),
        0.5, 0.49),
    **rows("a tenth of the requests has to wait 2", lambda waiting: engine(9.0, 2 * waiting, 30.0),
        0.5, 0.49),
    **rows("few requests in a nearly empty cache are too few", lambda peak,
        full: engine(peak / 2, 0.0, full), (32.0, 25.0), (33.0, 25.0), (32.0, 25.1)),
    **named(where_no_flag_rolls_out_more_it_is_advised_in, True, False),
    "sglang has another flag": lambda:
        queueing(command=("python", "-m", "sglang.launch_server", "--max-running-requests", "16")),
    "without the command it is advice and less sure": lambda: queueing(pid=None),
    "a server below its limit waits for something else 1": lambda:
        queueing(command=(*SLOTS[:-1], "17")),
    "a server below its limit waits for something else 2": lambda:
        queueing(command=(*SLOTS[:-1], "256")),
    "a server s full cache is another finding 1": lambda: queueing(full=89.0),
    "a server s full cache is another finding 2": lambda: queueing(full=90.0),
    "one request in ten is too many 1": lambda: queueing(running=89.0, waiting=11.0),
    "one request in ten is too many 2": lambda: queueing(running=91.0, waiting=9.0),
    "a short rollout has nothing to give": lambda: queueing(phases={**HEALTHY, "rollout": 0.5}),
    "an unknown cache does not stop it": lambda: queueing(full=None),
    "who says nothing of its queue is not judged": lambda: served(beside_servers(),
        requests_running=16.0),
    "a limit of none is no limit": lambda: queueing(command=(*SLOTS[:-1], "0")),
}  # fmt: skip
