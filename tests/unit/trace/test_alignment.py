"""One job, recorded under other clocks and on other threads: it is told as the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.errors import TraceError
from grpo_doctor.trace import events
from grpo_doctor.trace.events import nested
from grpo_doctor.trace.joined import within_run
from grpo_doctor.trace.jsonfile import MAX_TIME_NS
from grpo_doctor.trace.merge import merge
from grpo_doctor.trace.model import Kind, Loss, Trace
from grpo_doctor.trace.spanfile import read_span_file
from grpo_doctor_probes.record import layout
from tests.build import TraceBuilder
from tests.recording import write_recording
from tests.unit.trace.test_merge import UNIX, S, end, facts, run_json

Row = tuple[str, int, int, int, int]  # name, begin and end in seconds, thread, kind
ROWS: tuple[Row, ...] = (
    ("init", 5, 6, 3, layout.SPAN),
    ("step", 6, 9, 3, layout.STEP),
    ("rollout", 6, 8, 3, layout.SPAN),
    ("loader", 6, 7, 0, layout.SPAN),
    ("images", 7, 7, 0, layout.COUNTER),
)


def record(folder: Path, rank: int, rows: tuple[Row, ...], shift_s: int, **more: Any) -> None:
    """A recording of which every row has a thread and a kind, on a clock that is behind."""
    spans = [(name, (b - shift_s) * S, (e - shift_s) * S) for name, b, e, _, _ in rows]
    path = write_recording(folder, rank, spans, start_ns=(4 - shift_s) * S, **more)
    data = bytearray(path.read_bytes())
    for number, (_, _, _, thread, kind) in enumerate(rows):
        offset = layout.HEADER_BYTES + layout.SEGMENT_HEADER_BYTES + number * layout.RECORD_BYTES
        begin, over, _, name, _, depth, _ = layout.RECORD.unpack_from(data, offset)
        layout.RECORD.pack_into(data, offset, begin, over, 1.0, name, thread, depth, kind)
    path.write_bytes(data)


def job(folder: Path, shifts_s: tuple[int, int, int]) -> Trace:
    """Rank 0, which was killed, rank 1 and the launcher with samples, each on a host that was
    booted so many seconds later than the first."""
    hosts = [facts(f"host-{n}", f"boot-{s}", UNIX + s * S) for n, s in enumerate(shifts_s)]
    rank0, rank1, launcher = shifts_s
    opened = [("step", (9 - rank0) * S)]
    record(folder, 0, ROWS, rank0, opened=opened, facts=hosts[0])
    record(folder, 1, ROWS, rank1, closed_ns=(12 - rank1) * S, facts=hosts[1], pid=4001)
    host = hosts[2]
    run_json(
        folder, host=host["host"], clock_id=host["clock_id"], clock=host["clocks"][0],
        started_ns=(2 - launcher) * S, end=end(ended_ns=(14 - launcher) * S),
    )  # fmt: skip
    (folder / "hosts").mkdir()
    for number, (host, shift_s) in enumerate(zip(hosts, shifts_s)):
        head = {
            "format": 1, "host": host["host"], "clock_id": host["clock_id"],
            "t_ns": 0, "unix_ns": UNIX + shift_s * S,
        }  # fmt: skip
        track = {"track": 0, "name": "rank.cpu", "unit": "%", "pid": 4000, "rank": 0}
        last_s = (13, 16, 15)[number]
        ticks = [{"t": (t - shift_s) * S, "v": {"0": t}} for t in (7, last_s)]
        lines = map(json.dumps, [head, track, *ticks])
        (folder / "hosts" / f"host-{number}.samples.jsonl").write_text("\n".join(lines))
    return merge(folder)


def story(trace: Trace) -> dict[str, Any]:
    """What happened when, in seconds after the run's begin."""
    spans = trace.spans
    columns = (spans.process, spans.thread, spans.kind, spans.start_ns // S, spans.end_ns // S)
    return {
        "spans": list(zip([trace.names[n] for n in spans.name], *(c.tolist() for c in columns))),
        "processes": [
            (p.state, (p.start_ns or 0) // S, (p.end_ns or 0) // S) for p in trace.processes
        ],
        "series": sorted((s.name, s.host, (s.t_ns // S).tolist()) for s in trace.series),
        "seconds": trace.run.duration_ns / S,
    }


# Far from zero, as of machines that were booted long ago, and so that times stay positive.
@pytest.mark.parametrize("shifts_s", [(-90, -40, -10), (-90, -90, -10), (-5, -40, -90)])
def test_a_job_is_the_same_whatever_its_hosts_clocks_say(
    tmp_path: Path, shifts_s: tuple[int, int, int]
) -> None:
    aligned = story(job(tmp_path / "aligned", (0, 0, 0)))
    assert aligned["seconds"] == 14  # from the launcher's begin at 2 to the last sample at 16
    # The killed one lasts as long as its own host's samples of it say.
    assert aligned["processes"] == [("open", 2, 11), ("finished", 2, 10)]
    assert story(job(tmp_path / "shifted", shifts_s)) == aligned


def test_the_thread_with_the_steps_comes_first_and_the_first_takes_its_place(
    tmp_path: Path,
) -> None:
    trace = job(tmp_path, (0, 0, 0))
    rows = [(name, thread) for name, process, thread, *_ in story(trace)["spans"] if process == 1]
    assert rows == [("init", 0), ("step", 0), ("rollout", 0), ("loader", 3)]
    assert sorted(s.name for s in trace.series if s.scope == "counter") == ["images", "images"]


def test_the_thread_of_the_first_step_is_the_main_one_whatever_others_recorded_before(
    tmp_path: Path,
) -> None:
    rows: tuple[Row, ...] = (
        ("loader", 5, 6, 7, layout.SPAN),
        ("step", 6, 9, 3, layout.STEP),
        ("loader", 9, 10, 7, layout.SPAN),
    )
    record(tmp_path, 0, rows, 0, facts=facts())
    assert [(name, thread) for name, _, thread, *_ in story(merge(tmp_path))["spans"]] == [
        ("loader", 7), ("step", 0), ("loader", 7),
    ]  # fmt: skip


@pytest.mark.parametrize("thread", [0, 3, layout.THREAD_SLOTS - 1])
def test_a_step_that_never_ended_is_on_the_main_thread_and_has_its_number(
    tmp_path: Path, thread: int
) -> None:
    write_recording(tmp_path, 0, opened=[("step", 4 * S), ("rollout", 5 * S)], facts=facts())
    path = tmp_path / "ranks" / "00000.spans"
    data = bytearray(path.read_bytes())
    state = memoryview(data)[layout.STATE_OFFSET : layout.THREADS_OFFSET].cast("Q")
    state[layout.STATE_STEP] = 18  # the number and one, as 0 is none
    first = layout.THREADS_OFFSET
    offset = first + thread * layout.THREAD_BYTES
    block = bytes(data[first : first + layout.THREAD_BYTES])
    data[first : first + layout.THREAD_BYTES] = bytes(layout.THREAD_BYTES)
    data[offset : offset + layout.THREAD_BYTES] = block
    path.write_bytes(data)
    spans = merge(tmp_path).spans
    assert spans.thread.tolist() == [0, 0]
    assert spans.kind.tolist() == [Kind.STEP, Kind.SPAN]
    assert spans.value.tolist() == [17, 0]


@pytest.mark.parametrize(
    ("thread", "kind", "over_s", "is_valid"),
    [
        (layout.THREAD_SLOTS - 1, layout.SPAN, 9, True),
        (layout.THREAD_SLOTS, layout.SPAN, 9, False),
        (0, 7, 9, True),  # the last kind there is
        (0, 8, 9, False),
        (0, layout.SPAN, 5_000_000_000, False),
    ],
)
def test_a_record_that_can_not_be_is_left_out(
    tmp_path: Path, thread: int, kind: int, over_s: int, is_valid: bool
) -> None:
    record(tmp_path, 0, (("rollout", 5, over_s, thread, kind),), 0, facts=facts())
    content = read_span_file(tmp_path / "ranks" / "00000.spans")
    assert (len(content.records), content.damaged) == ((1, 0) if is_valid else (0, 1))


@pytest.mark.parametrize("started_s", [0, 3_599, 3_600, 3_601, 86_401])
def test_what_a_process_did_before_it_recorded_counts_where_that_is_an_hour_at_most(
    tmp_path: Path, started_s: int
) -> None:
    """Else its kernel had other work. All is later than zero: a host is on for a while."""
    begin = 200_000
    write_recording(
        tmp_path, 0, [("init", (begin + 1) * S, (begin + 2) * S)], start_ns=begin * S,
        facts=facts(process_start_ns=(begin - started_s) * S),
    )  # fmt: skip
    before_s = started_s if started_s <= 3_600 else 0
    assert merge(tmp_path).run.duration_ns == (before_s + 2) * S


@pytest.mark.parametrize(
    ("kind", "records"), [(layout.COUNTER, 1), (layout.SPAN, 0), (layout.COLLECTIVE, 0)]
)
def test_only_counters_may_have_no_value(tmp_path: Path, kind: int, records: int) -> None:
    record(tmp_path, 0, (("x", 5, 6, 0, kind),), 0, facts=facts())
    path = tmp_path / "ranks" / "00000.spans"
    data, offset = bytearray(path.read_bytes()), layout.HEADER_BYTES + layout.SEGMENT_HEADER_BYTES
    begin, over, _, *rest = layout.RECORD.unpack_from(data, offset)
    layout.RECORD.pack_into(data, offset, begin, over, float("nan"), *rest)
    path.write_bytes(data)
    assert len(read_span_file(path).records) == records


@pytest.mark.parametrize(("times", "refused"), [
    ({"start_ns": 0}, True),
    ({"start_ns": 1}, False),
    ({"start_ns": MAX_TIME_NS}, True),
    ({"closed_ns": MAX_TIME_NS}, False),
    ({"closed_ns": MAX_TIME_NS + 1}, True),
])  # fmt: skip
def test_times_of_a_header_that_make_no_sense_are_refused(
    tmp_path: Path, times: dict[str, Any], refused: bool
) -> None:
    path = write_recording(tmp_path, 0, **times)
    if refused:
        with pytest.raises(TraceError, match="the times in its header are impossible"):
            read_span_file(path)
    else:
        assert len(read_span_file(path).records) == 0


def test_an_end_that_no_clock_reaches_is_damage(tmp_path: Path) -> None:
    path = write_recording(tmp_path, 0, [("a", 5, MAX_TIME_NS - 1), ("b", 5, MAX_TIME_NS)],
                           start_ns=5)  # fmt: skip
    content = read_span_file(path)
    assert (len(content.records), content.damaged) == (1, 1)


def test_each_counter_has_its_own_samples(tmp_path: Path) -> None:
    rows = tuple((name, at, at, 0, layout.COUNTER) for name, at in (("a", 5), ("b", 6), ("a", 7)))
    record(tmp_path, 0, rows, 0, facts=facts())
    samples = {series.name: (series.t_ns // S).tolist() for series in merge(tmp_path).series}
    assert samples == {"a": [1, 3], "b": [2]}


@pytest.mark.parametrize(
    ("off_ns", "sampled_s"),
    [(0, 6.0), (S // 2, 6.0), (-S // 2, 6.0), (S, 6.0), (2 * S, 8.0), (-2 * S, 4.0)],
)
def test_samples_are_on_the_clock_of_their_host_unless_that_is_seconds_off(
    tmp_path: Path, off_ns: int, sampled_s: float
) -> None:
    """Rank 1's host was booted 100 s before the other; its samples say so to within a second."""
    early = UNIX - 100 * S
    record(tmp_path, 0, (("step", 5, 9, 0, layout.STEP),), 0, facts=facts(), closed_ns=12 * S)
    record(tmp_path, 1, (("step", 5, 9, 0, layout.STEP),), -100, pid=4001,
           facts=facts("b", "boot-b", early))  # fmt: skip
    (tmp_path / "hosts").mkdir()
    lines = [
        {"format": 1, "host": "b", "t_ns": S, "unix_ns": early + S + off_ns},
        {"track": 0, "name": "rank.cpu", "unit": "%", "pid": 4001, "rank": 1},
        *({"t": (100 + at) * S, "v": {"0": at}} for at in (10, 20)),
    ]
    text = "\n".join(map(json.dumps, lines))
    (tmp_path / "hosts" / "b.samples.jsonl").write_text(text)
    trace = merge(tmp_path)
    (series,) = trace.series
    assert series.t_ns[0] / S == sampled_s
    # A process that was killed lasts until its last sample.
    killed = trace.processes[1]
    assert (killed.state, (killed.end_ns or 0) / S) == ("open", sampled_s + 10)
    assert [process.pid for process in trace.processes] == [1000, 2000]


def test_where_two_overlap_of_three_none_is_lost() -> None:
    build = TraceBuilder().span(0, "a", 0, 4).span(0, "b", 2, 6).span(0, "c", 6, 7)
    build.span(0, "d", 1, 2, thread=1)
    spans, lane = nested(build.build())
    assert spans.end_ns.tolist() == [4 * S, 2 * S, 6 * S, 7 * S]
    assert len(set(lane.tolist())) == 3
    assert (lane % events.OVERFLOW).tolist() == [1, 11, 1, 1]


def test_what_a_server_did_before_and_after_a_run_is_cut_off_to_the_moment() -> None:
    build = TraceBuilder()
    for name, start, over in (("a", 0, 1), ("b", 1, 3), ("c", 3, 9), ("d", 9, 10), ("e", 10, 11)):
        build.span(0, name, start, over)
    spans = build.build().spans
    shifted = replace(spans, start_ns=spans.start_ns - 2 * S, end_ns=spans.end_ns - 2 * S)
    inside = within_run(shifted, 7 * S)
    assert (inside.start_ns // S).tolist() == [0, 1, 7]
    assert (inside.end_ns // S).tolist() == [1, 7, 7]


@pytest.mark.parametrize(
    "loss",
    [Loss(dropped_events=1), Loss(missing_ranks=(1,)), Loss(truncated=True), Loss(notes=("x",))],
)
def test_any_loss_is_a_loss(loss: Loss) -> None:
    assert loss.any
    assert not Loss().any
