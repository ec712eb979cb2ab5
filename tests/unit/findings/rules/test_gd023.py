from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import finding_in, missing, passed, run, value

TIMES = [0.0, 100.0]


def standing(
    waits: tuple[float, ...] = (30.0, 2.0, 2.0, 2.0),
    *,
    host: float | None = 30.0,
    memory_gib: tuple[float, float] | None = (70.0, 72.0),
) -> TraceBuilder:
    """Ranks that wait for a CPU so many percent of the time."""
    build = run(memory_gib=memory_gib)
    for rank, wait in enumerate(waits):
        build.series("rank.cpu_wait", "%", TIMES, [wait, wait], scope="rank", rank=rank)
        build.series("rank.processors", "count", TIMES, [1.0, 1.0], scope="rank", rank=rank)
    if host is not None:
        build.series("host.cpu", "%", TIMES, [host, host])
    return build


def sick() -> TraceBuilder:
    return standing()


def well() -> TraceBuilder:
    return standing((2.0, 2.0, 2.0, 2.0))


def test_a_rank_in_line_beside_idle_processors_is_confined() -> None:
    finding = finding_in(sick(), "GD023")
    assert finding.ranks == (0,)
    assert value(finding, "rank 0 waits") == 30.0
    assert value(finding, "CPUs it may use") == 1
    assert (finding.severity, finding.confidence) == ("high", 0.9)
    assert finding.cost == pytest.approx(0.3)
    assert finding.headline == "Ranks are pinned to too few CPUs"
    assert "Cpus_allowed_list" in finding.fixes[0].spelling


def test_a_full_host_has_too_much_to_do() -> None:
    finding = finding_in(standing(host=97.0), "GD023")
    assert (finding.severity, finding.confidence) == ("medium", 0.9)
    assert "OMP_NUM_THREADS" in finding.fixes[0].spelling


def test_a_full_host_without_a_gpu_is_what_it_is_for() -> None:
    assert finding_in(standing(host=97.0, memory_gib=None), "GD023").severity == "low"


def test_ranks_that_fill_the_host_themselves_are_no_finding_without_a_gpu() -> None:
    def filled(wait: float) -> TraceBuilder:
        build = standing((wait,) * 4, host=95.0, memory_gib=None)
        for rank in range(4):
            build.series("rank.cpu", "%", TIMES, [22.0, 22.0], scope="rank", rank=rank)
        return build

    assert "that this job itself keeps 88% busy" in passed(filled(20.0), "GD023")
    # Four ranks of one thread each on their own processors never wait for so long.
    assert finding_in(filled(40.0), "GD023").severity == "low"


def test_programs_of_others_are_told_from_the_ranks_own() -> None:
    build = standing(host=99.0, memory_gib=None)
    for rank in range(4):
        build.series("rank.cpu", "%", TIMES, [10.0, 10.0], scope="rank", rank=rank)
    finding = finding_in(build, "GD023")
    assert finding.headline == "CPU contention from other processes"
    assert value(finding, "this job's own") == 40.0  # four ranks of 10% on one processor
    assert (finding.severity, finding.confidence) == ("medium", 0.9)
    assert "of other jobs, and" in finding.fixes[0].spelling


def test_a_host_of_middling_load_leaves_it_unclear() -> None:
    finding = finding_in(standing(host=75.0), "GD023")
    assert (finding.severity, finding.confidence, finding.headline) == ("medium", 0.7, "")


def test_a_host_that_is_full_in_bursts_is_not_idle() -> None:
    build = run(memory_gib=None)
    times = [float(n) for n in range(60)]
    bursts = [n % 3 == 0 for n in range(60)]
    for rank in range(4):
        waits = [60.0 if is_burst else 0.0 for is_burst in bursts]
        build.series("rank.cpu_wait", "%", times, waits, scope="rank", rank=rank)
    build.series("host.cpu", "%", times, [100.0 if is_burst else 5.0 for is_burst in bursts])
    finding = finding_in(build, "GD023")
    assert value(finding, "host CPU usage") == pytest.approx(100.0)
    assert (finding.severity, finding.headline) == (
        "low",
        "More threads want to run than the host has CPUs",
    )


def test_all_ranks_in_line_are_named_as_none() -> None:
    assert finding_in(standing((30.0,) * 4), "GD023").ranks == ()


def test_a_little_waiting_passes() -> None:
    assert "2.0% of the time" in passed(well(), "GD023")


def test_without_samples_it_says_what_takes_them() -> None:
    assert "schedstats" in missing(run(), "GD023")


def busy_with(own: float, host: float, wait: float = 20.0) -> TraceBuilder:
    """Four ranks on four processors that keep them busy so many percent."""
    build = standing((wait,) * 4, host=host, memory_gib=None)
    for rank in range(4):
        build.series("rank.cpu", "%", TIMES, [own / 4, own / 4], scope="rank", rank=rank)
    return build


@pytest.mark.parametrize(("wait", "is_found"), [(30.0, True), (29.9, False)])
def test_what_a_job_of_its_own_may_wait(wait: float, is_found: bool) -> None:
    if is_found:
        assert finding_in(busy_with(88.0, 95.0, wait), "GD023").cost == pytest.approx(0.3)
    else:
        assert "for CPUs that this job itself keeps" in passed(busy_with(88.0, 95.0, wait), "GD023")


@pytest.mark.parametrize(
    ("host", "headline"),
    [
        (59.9, "Ranks are pinned to too few CPUs"),
        (60.0, ""),
        (90.0, ""),
        (90.1, "More threads want to run than the host has CPUs"),
    ],
)
def test_how_busy_the_host_is_decides_why(host: float, headline: str) -> None:
    assert finding_in(standing(host=host), "GD023").headline == headline


@pytest.mark.parametrize(("own", "others"), [(70.0, True), (70.4, False)])
def test_a_quarter_of_the_host_is_what_others_take(own: float, others: bool) -> None:
    finding = finding_in(busy_with(own, 95.0, 40.0), "GD023")
    assert (finding.headline == "CPU contention from other processes") is others


def test_what_is_of_no_rank_or_of_no_step_is_left_out() -> None:
    build = standing((30.0, 2.0, 2.0))
    build.series("rank.cpu_wait", "%", [500.0, 501.0], [90.0, 90.0], scope="rank", rank=3)
    build.series("rank.cpu_wait", "%", TIMES, [80.0, 80.0], scope="rank", pid=7)
    finding = finding_in(build, "GD023")
    assert finding.ranks == (0,)
    assert value(finding, "rank 0 waits") == 30.0
    assert value(finding, "mean of all ranks") == pytest.approx(34 / 3, abs=0.1)


def test_the_host_of_the_rank_that_waits_is_named() -> None:
    build = run(hosts=["host-a", "host-b", "host-c", "host-d"], memory_gib=None)
    build.series("rank.cpu_wait", "%", TIMES, [30.0, 30.0], scope="rank", rank=2)
    assert finding_in(build, "GD023").fixes[0].spelling.startswith("on host-c: ")
