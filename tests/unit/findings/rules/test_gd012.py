from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.rules import saying
from tests.unit.findings.rules.served import UNITS, VLLM, beside_servers, served

KNOBS = saying.with_knobs(vllm__gpu_memory_utilization=0.3)


def engine(
    *,
    full: float = 99.0,
    running: float = 30.0,
    waiting: float = 20.0,
    preemptions: float = 12.0,
    memory_gib: tuple[float, float] | None = (40.0, 48.0),
    phases: dict[str, float] = saying.HEALTHY,
) -> TraceBuilder:
    """An engine of 64 requests per rollout."""
    build = saying.run(phases, knobs=KNOBS, memory_gib=memory_gib)
    return saying.counted(
        build,
        {"engine/kv_cache_peak_pct": full, "engine/running_requests_mean": running,
            "engine/running_requests_peak": 40.0, "engine/waiting_requests_mean": waiting,
            "engine/waiting_requests_peak": 24.0, "engine/preemptions": preemptions},
    )  # fmt: skip


def starved(
    *,
    full: float = 99.0,
    running: float = 30.0,
    waiting: float = 20.0,
    preemptions: float = 2.0,
    command: tuple[str, ...] = VLLM,
    pid: int | None = 700,
    phases: dict[str, float] = saying.HEALTHY,
    trl: str = "1.16.0",
) -> TraceBuilder:
    """A server with 50 requests throughout each rollout."""
    build = beside_servers(phases)
    build.run_facts = {"versions": {"trl": trl}}
    return served(
        build, pid=pid, command=command, requests_running=running,
        requests_waiting=waiting, kv_cache=full, preemptions=preemptions,
    )  # fmt: skip


def one_of_two() -> TraceBuilder:
    return served(starved(), pid=800, requests_running=30.0, requests_waiting=0.0, kv_cache=99.0)


def an_engine_within_the_ranks_is_no_server() -> TraceBuilder:
    build = starved()
    build.knobs["vllm.mode"] = "colocate"
    return build


def of_a_server_either_is_enough(
    running: float, waiting: float, preemptions: float
) -> TraceBuilder:
    build = saying.even({"rollout": 10.0}, knobs={"vllm.mode": "server"})
    gauges = {
        "requests_running": running,
        "requests_waiting": waiting,
        "kv_cache": 95.0,
        "preemptions": preemptions,
    }
    for name, number in gauges.items():
        unit = UNITS.get(f"server.{name}", "count")
        build.series(f"server.{name}", unit, [0.0, 40.0], [number] * 2, scope="server", pid=700)
    return build


RUNS = {
    "sick": engine,
    "well": lambda: engine(full=60.0, waiting=0.0, preemptions=0.0),
    **saying.rows("the fix is in the server's own flag, if any", lambda command, trl="1.16.0":
        starved(command=tuple(command.split()), trl=trl),
        "vllm serve m", "vllm serve m --gpu-memory-utilization 0.3",
        "vllm serve m --gpu-memory-utilization 0.95", "vllm serve m --num-gpu-blocks-override 64",
        "python -m sglang.launch_server --mem-fraction-static 0.6", "sglang serve --model-path m",
        "swift rollout --model m", "bash serve.sh", ("trl vllm-serve --model m", "1.10.0"),
        ("trl vllm-serve --model m", "1.16.0")),
    **saying.rows("a server that keeps something to itself", lambda gauges:
        served(beside_servers(), **gauges),
        {}, {"requests_running": 30.0, "requests_waiting": 20.0},
        {"requests_running": 30.0, "kv_cache": 99.0},
        {"requests_running": 30.0, "requests_waiting": 20.0, "kv_cache": 99.0}),
    "a full gpu gets advice": lambda: engine(memory_gib=(70.0, 76.0)),
    "waiting alone is not severe": lambda: engine(preemptions=0.0),
    "a cache with room passes however many wait": lambda: engine(full=60.0),
    "a full cache that holds nobody back passes": lambda: engine(waiting=0.0, preemptions=0.0),
    "a short rollout has nothing to give": lambda:
        engine(phases={**saying.HEALTHY, "rollout": 0.2}),
    "without the engines counters it says what records them": saying.run,
    "numbers that are none are no finding 1": lambda: engine(full=float("nan")),
    "numbers that are none are no finding 2": lambda: engine(waiting=float("nan"),
        preemptions=float("nan")),
    "a server or unknown memory is given no number": lambda: engine(memory_gib=None),
    **saying.rows(
        "either waiting or throwing out is enough",
        lambda running, waiting, preemptions: engine(
            running=running, waiting=waiting, preemptions=preemptions
        ),
        (19.0, 1.0, 0.0),
        (19.1, 1.0, 0.0),
        (20.0, 0.0, 1.28),
        (20.0, 0.0, 1.27),
        (19.1, 1.0, 1.27),
    ),
    "however many are thrown out some of the rollout is work": lambda: starved(preemptions=50.0),
    "a server that the run asked is judged too": lambda: starved(pid=None),
    "nine tenths are full and less is not 1": lambda: starved(full=90.0),
    "nine tenths are full and less is not 2": lambda: starved(full=89.9),
    "few that wait are no harm 1": lambda: starved(running=94.0, waiting=6.0, preemptions=0.0),
    "few that wait are no harm 2": lambda: starved(running=96.0, waiting=4.0, preemptions=0.0),
    **saying.named(of_a_server_either_is_enough, (95.0, 5.0, 0.0), (95.1, 4.9, 0.0),
        (100.0, 0.0, 0.2), (100.0, 0.0, 0.19), (95.1, 4.9, 0.19)),
}  # fmt: skip
