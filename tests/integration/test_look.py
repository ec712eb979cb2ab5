"""Looking at real processes that are blocked, stopped, frozen or dead."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_probes import look
from grpo_doctor_probes.evidence import Blocked, Job, Look, Member, ProcessLook, Stack
from grpo_doctor_probes.look import pyspy
from tests.fake_nvml.build import FakeNvml, compiler

FREEZER = Path("/sys/fs/cgroup/freezer")
NEEDS_PYSPY = pytest.mark.skipif(pyspy.binary() is None, reason="py-spy is not installed")


def job_of(*pids: int) -> Job:
    """A job of these processes, each of them a rank."""
    return Job(
        "here",
        tuple(Member(pid, os.getpid(), 0, "rank", "r", "r", rank=r) for r, pid in enumerate(pids)),
    )


def until(holds: Callable[[], bool], at_most_s: float = 60.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + at_most_s
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@dataclass
class Stage:
    """Starts processes and ends all of them, whatever state they are in."""

    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, program: str, *arguments: str) -> int:
        """Run a Python program that prints a line when it is about to block; its pid."""
        command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        self.started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline(), "it did not get ready"
        return process.pid

    def end(self) -> None:
        while self.started:
            process = self.started.pop()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    one = Stage(tmp_path)
    yield one
    one.end()


def seen(pid: int) -> ProcessLook:
    """One look at one process."""
    (process,) = look.processes(job_of(pid)).processes
    return process


def asleep_in(pid: int, *wchans: str) -> Look:
    """Waits until the main thread sleeps in one of these kernel functions; that look."""
    taken: list[Look] = []

    def sleeps() -> bool:
        taken[:] = [look.processes(job_of(pid))]
        main = next(iter(taken[0].processes[0].threads), None)
        if main is None or main.state not in "SD" or main.syscall < 0:
            return False
        return any(name in main.wchan for name in wchans)

    until(sleeps)
    return taken[0]


def main_rows(pid: int, *wchans: str) -> list[Blocked]:
    """What the main thread waits for once it sleeps in one of these kernel functions."""
    taken = asleep_in(pid, *wchans)
    return [row for row in look.blocked(job_of(pid), taken) if row.tid == pid]


READY = "import os, sys, time; print('ready', flush=True)\n"


# --- counters and states


def test_a_sleeping_process_last_ran_when_it_fell_asleep(stage: Stage) -> None:
    pid = stage.start("import time; print(time.monotonic_ns(), flush=True); time.sleep(60)")
    taken = asleep_in(pid, "nanosleep")
    first = taken.processes[0].threads[0]
    assert first.state == "S"
    assert first.syscall >= 0
    time.sleep(0.3)  # so that an offset of the clock by less than this would show
    again = seen(pid).threads[0]
    assert again.last_ran_ns - first.last_ran_ns < 50_000_000
    waited_s = (time.monotonic_ns() - again.last_ran_ns) / 1e9
    assert 0.25 < waited_s < 20


def test_a_busy_process_ran_just_now(stage: Stage) -> None:
    pid = stage.start(READY + "while True: pass")
    before = seen(pid)
    until(lambda: seen(pid).cpu_ticks > before.cpu_ticks)
    process = seen(pid)
    assert process.state == "R"
    assert time.monotonic_ns() - process.threads[0].last_ran_ns < 2_000_000_000
    assert abs(process.threads[0].last_ran_ns - process.at_ns) < 2_000_000_000


def test_a_stopped_process(stage: Stage) -> None:
    pid = stage.start(READY + "time.sleep(60)")
    os.kill(pid, signal.SIGSTOP)
    until(lambda: seen(pid).state == "T")
    assert look.blocked(job_of(pid), look.processes(job_of(pid))) == ()


def test_a_zombie_has_an_exit_code_and_what_is_gone_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    until(lambda: seen(child.pid).state == "Z")
    process = seen(child.pid)
    assert process.exit_code is not None
    assert os.waitstatus_to_exitcode(process.exit_code) == -9
    assert look.blocked(job_of(child.pid), look.processes(job_of(child.pid))) == ()
    (stack,) = look.stacks([child.pid], at_most_s=5)
    assert (stack.threads, stack.problem) == ((), "it has ended")
    assert child.wait() == -9
    assert seen(child.pid).state == "X"
    assert look.limits(job_of(child.pid)) == ()


def test_a_later_process_of_the_same_number_is_not_the_member(stage: Stage) -> None:
    pid = stage.start(READY + "time.sleep(60)")
    member = Member(pid, 1, 12345, "rank", "r", "r")
    (process,) = look.processes(Job("here", (member,))).processes
    assert process.state == "X"


def test_hostile_names_break_nothing(stage: Stage) -> None:
    pid = stage.start(
        """
        import ctypes, time
        ctypes.CDLL(None).prctl(15, b") R 1 \\x1b[2Jx\\n", 0, 0, 0)
        print("ready", flush=True)
        time.sleep(60)
        """
    )
    process = asleep_in(pid, "nanosleep").processes[0]
    assert process.threads[0].name == ") R 1 ?[2Jx?"
    assert process.threads[0].state == "S"
    assert process.threads[0].last_ran_ns > 0


# --- what calls wait for


def test_a_full_pipe_names_its_reader(stage: Stage) -> None:
    pid = stage.start(
        """
        import subprocess, sys
        reader = subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE)
        print(reader.pid, flush=True)
        while True:
            reader.stdin.write(b"x" * 65536)
        """
    )
    (row,) = main_rows(pid, "pipe_write")
    assert (row.kind, row.peers_known) == ("pipe-write", True)
    assert row.target.startswith("pipe:[")
    (reader,) = row.peers
    asleep_in(reader, "nanosleep")  # the pipe may fill up before the reader has started
    (row,) = main_rows(pid, "pipe_write")
    assert f"held by {reader} (sleep, sleeping)" in row.note


def test_a_pipe_that_only_its_own_process_could_end(stage: Stage) -> None:
    pid = stage.start(READY + "r, w = os.pipe(); os.read(r, 1)")
    (row,) = main_rows(pid, "pipe_read")
    assert (row.kind, row.peers, row.peers_known) == ("pipe-read", (pid,), True)
    assert "only this process itself" in row.note


def test_a_fifo_that_nobody_opens(stage: Stage) -> None:
    path = stage.folder / "a fifo\n\x1b[31m"
    os.mkfifo(path)
    pid = stage.start(READY + "open(sys.argv[1])", str(path))
    (row,) = main_rows(pid, "wait_for_partner")
    assert (row.kind, row.peers, row.peers_known) == ("fifo-open", (), True)
    assert row.target == str(stage.folder) + "/a fifo??[31m"
    assert row.note == "waits until somebody opens it for writing"


def test_a_fifo_whose_writer_is_silent(stage: Stage) -> None:
    path = stage.folder / "fifo"
    os.mkfifo(path)
    program = READY + "f = os.open(sys.argv[1], int(sys.argv[2])); os.read(f, 1); time.sleep(60)"
    reader = stage.start(program, str(path), str(os.O_RDONLY))
    asleep_in(reader, "wait_for_partner")
    writer = stage.start(READY + "f = open(sys.argv[1], 'wb'); time.sleep(60)", str(path))
    (row,) = main_rows(reader, "pipe_read")
    assert (row.kind, row.target, row.peers) == ("pipe-read", str(path), (writer,))


def test_a_sleep_that_was_stopped_and_continued_is_still_a_sleep(stage: Stage) -> None:
    pid = stage.start(READY + "time.sleep(60)")
    asleep_in(pid, "nanosleep")
    os.kill(pid, signal.SIGSTOP)
    until(lambda: seen(pid).state == "T")
    os.kill(pid, signal.SIGCONT)
    (row,) = main_rows(pid, "nanosleep")
    assert row.kind == "sleep"


def test_helper_threads_are_told_where_they_wait_for_others(stage: Stage) -> None:
    pid = stage.start(
        """
        import os, threading, time
        r, w = os.pipe()
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        threading.Thread(target=os.read, args=(r, 1), daemon=True).start()
        print("ready", flush=True)
        time.sleep(60)
        """
    )
    taken: list[Look] = []

    def all_sleep() -> bool:
        taken[:] = [look.processes(job_of(pid))]
        threads = taken[0].processes[0].threads
        return len(threads) == 4 and all(one.state == "S" and one.syscall >= 0 for one in threads)

    until(all_sleep)
    rows = look.blocked(job_of(pid), taken[0])
    assert sorted(row.kind for row in rows) == ["pipe-read", "sleep"]
    (helper,) = [row for row in rows if row.tid != pid]
    assert (helper.kind, helper.pid) == ("pipe-read", pid)


def test_a_file_lock_names_its_holder(stage: Stage) -> None:
    program = """
        import fcntl, sys, time
        file = open(sys.argv[1], "w")
        print("ready", flush=True)
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(60)
        """
    path = str(stage.folder / "cache.lock")
    holder = stage.start(program, path)
    asleep_in(holder, "nanosleep")
    waiter = stage.start(program, path)
    (row,) = main_rows(waiter, "locks_lock", "flock")
    assert (row.kind, row.target, row.peers) == ("file-lock", path, (holder,))
    assert f"held by {holder} (" in row.note


def test_a_lock_that_a_dead_process_left_to_its_child(stage: Stage) -> None:
    path = str(stage.folder / "hub.lock")
    parent = stage.start(
        """
        import fcntl, os, sys, time
        file = open(sys.argv[1], "w")
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fork():
            print("ready", flush=True)
            os._exit(0)
        time.sleep(60)
        """,
        path,
    )
    until(lambda: seen(parent).state in "ZX")
    stage.started[-1].wait(20)
    waiter = stage.start(
        READY + "import fcntl; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX)", path
    )
    (row,) = main_rows(waiter, "locks_lock", "flock")
    assert len(row.peers) == 1
    assert row.peers[0] not in {parent, waiter}
    assert f"taken by process {parent}, which has ended" in row.note


def test_a_posix_lock_names_its_holder(stage: Stage) -> None:
    program = """
        import fcntl, sys, time
        file = open(sys.argv[1], "w")
        print("ready", flush=True)
        fcntl.lockf(file, fcntl.LOCK_EX)
        time.sleep(60)
        """
    path = str(stage.folder / "posix.lock")
    holder = stage.start(program, path)
    asleep_in(holder, "nanosleep")
    waiter = stage.start(program, path)
    (row,) = main_rows(waiter, "lock", "fcntl_setlk")
    assert (row.kind, row.peers) == ("file-lock", (holder,))


def test_a_server_that_accepts_and_never_answers(stage: Stage) -> None:
    server = stage.start(
        """
        import socket, time
        listening = socket.create_server(("127.0.0.1", 0))
        print(listening.getsockname()[1], flush=True)
        one, _ = listening.accept()
        time.sleep(60)
        """
    )
    port = listening_port(server)
    pid = stage.start(
        """
        import socket, sys
        one = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        one.sendall(b"hello")
        print("ready", flush=True)
        one.recv(1)
        """,
        str(port),
    )
    (row,) = main_rows(pid, "wait_woken", "sk_wait", "tcp_recv")
    assert (row.kind, row.peers, row.peers_known) == ("socket-receive", (server,), True)
    assert row.target.endswith(f"-> 127.0.0.1:{port}")
    assert "ESTABLISHED" in row.note
    assert "5 bytes that it has not read" in row.note


def test_a_reader_that_stopped_leaves_bytes_unconfirmed(stage: Stage) -> None:
    reader = stage.start(
        """
        import socket, time
        listening = socket.create_server(("::1", 0), family=socket.AF_INET6)
        print("ready", flush=True)
        one, _ = listening.accept()
        time.sleep(60)
        """
    )
    port = listening_port(reader)
    pid = stage.start(
        READY + "import socket\n"
        "socket.create_connection(('::1', int(sys.argv[1]))).sendall(bytes(1 << 26))",
        str(port),
    )
    (row,) = main_rows(pid, "wait_memory", "sk_stream", "wait_woken")
    assert (row.kind, row.peers) == ("socket-send", (reader,))
    assert row.target.endswith(f"-> [::1]:{port}")
    assert "bytes are not confirmed by the other end" in row.note


def test_a_server_that_does_not_even_accept(stage: Stage) -> None:
    server = stage.start(
        """
        import socket, time
        listening = socket.create_server(("127.0.0.1", 0))
        print("ready", flush=True)
        time.sleep(60)
        """
    )
    port = listening_port(server)
    pid = stage.start(
        """
        import socket, sys
        one = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60)
        print("ready", flush=True)
        one.recv(1)
        """,
        str(port),
    )
    # With a timeout Python polls the one socket.
    (row,) = main_rows(pid, "poll_schedule", "do_sys_poll", "do_poll")
    assert (row.kind, row.peers) == ("socket-receive", (server,))
    assert "accepted by the kernel but not yet by" in row.note


def test_a_server_whose_queue_of_connections_is_full(stage: Stage) -> None:
    server = stage.start(
        """
        import socket, time
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        print("ready", flush=True)
        time.sleep(60)
        """
    )
    port = listening_port(server)
    pid = stage.start(
        READY + "import socket\n"
        "kept = [socket.create_connection(('127.0.0.1', int(sys.argv[1]))) for _ in range(9)]",
        str(port),
    )
    (row,) = main_rows(pid, "inet_stream_connect", "wait_for_connect", "wait_woken")
    assert (row.kind, row.peers) == ("socket-connect", (server,))
    assert row.note.startswith("SYN_SENT")
    assert f"not yet accepted by {server} (" in row.note


def listening_port(pid: int) -> int:
    """The port that a process listens on."""
    from grpo_doctor_probes.look.httpengines import _socket_inodes
    from grpo_doctor_probes.look.sockets import TcpTable

    proc = Path("/proc")
    table = TcpTable(proc, pid)
    found = [table.of(inode) for inode in _socket_inodes(pid, proc)]
    return next(one.local[1] for one in found if one is not None and one.state == "LISTEN")


def test_the_other_end_of_a_socket_pair(stage: Stage) -> None:
    pid = stage.start(
        """
        import multiprocessing, sys, time
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe()
        child = context.Process(target=time.sleep, args=(60,), daemon=True)
        child.start()
        there.close()
        print(child.pid, flush=True)
        here.recv()
        """
    )
    (row,) = main_rows(pid, "wait_woken", "unix_stream", "schedule_timeout")
    assert row.kind == "socket-receive"
    assert row.target.startswith("unix socket")
    assert len(row.peers) == 1
    assert row.peers[0] != pid
    assert f"the other end is held by {row.peers[0]} (" in row.note


def test_a_hung_child_and_what_it_waits_for_itself(stage: Stage) -> None:
    pid = stage.start(
        """
        import subprocess
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        print(child.pid, flush=True)
        child.wait()
        """
    )
    taken = asleep_in(pid, "do_wait")
    for peer in look.blocked(job_of(pid), taken)[0].peers:
        asleep_in(peer, "pipe_read")
    rows = look.blocked(job_of(pid), taken)
    (own,) = [row for row in rows if row.pid == pid]
    assert own.kind == "child"
    (child,) = own.peers
    assert f"waits for child: {child} (cat, sleeping)" == own.note
    (its,) = [row for row in rows if row.pid == child]
    assert (its.kind, its.peers) == ("pipe-read", (pid,))


def test_an_event_loop_and_select_name_their_sockets(stage: Stage) -> None:
    program = """
        import select, socket, sys
        here, there = socket.socketpair()
        print("ready", flush=True)
        if sys.argv[1] == "select":
            select.select([here], [], [])
        else:
            waiting = select.epoll()
            waiting.register(here, select.EPOLLIN)
            waiting.poll()
        """
    for way, wchan in (("select", "poll_schedule"), ("epoll", "ep_poll")):
        pid = stage.start(program, way)
        rows = main_rows(pid, wchan, "do_select", "do_epoll_wait")
        assert [(row.kind, row.peers) for row in rows] == [("socket-receive", (pid,))], way


# --- stacks


SERVING = """
    import ctypes, threading, time
    class Reward:
        def score(self, src, prompt):
            dst = 3
            time.sleep(60)
    def outer():
        Reward().score(1, "a secret prompt")
    threading.Thread(target=threading.Event().wait, name="he\\x1b[31mllo\\n", daemon=True).start()
    print("ready", flush=True)
    outer()
    """


@NEEDS_PYSPY
def test_stacks_have_the_main_thread_first_and_no_control_characters(stage: Stage) -> None:
    pids = [stage.start(SERVING) for _ in range(3)]
    for pid in pids:
        asleep_in(pid, "nanosleep")
    taken = look.stacks(pids, at_most_s=20)
    assert [stack.pid for stack in taken] == pids
    for stack in taken:
        assert (stack.problem, stack.pause_ms, stack.native) == ("", 0.0, False)
        main, helper = stack.threads
        assert main.tid == stack.pid
        names = [frame.function.rpartition(".")[2] for frame in main.frames]
        assert names == ["score", "outer", "<module>"]
        assert main.frames[0].line == 6
        assert helper.name == "he?[31mllo?"


@NEEDS_PYSPY
def test_only_what_has_run_is_read_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    still = stage.start(SERVING)
    moving = stage.start(READY + "while True: time.sleep(0.01)")
    asleep_in(still, "nanosleep")
    job = job_of(still, moving)
    before = look.processes(job)
    first = look.stacks([still, moving], at_most_s=20)

    def has_moved() -> bool:
        now, then = seen(moving), before.of(moving)
        return then is not None and now.voluntary > then.voluntary

    until(has_moved)
    after = look.processes(job)
    read: list[int] = []
    dump = pyspy.dump

    def noted(pid: int, *options: str, at_most_s: float) -> list[dict[str, Any]]:
        read.append(pid)
        return dump(pid, *options, at_most_s=at_most_s)

    monkeypatch.setattr(pyspy, "dump", noted)
    again = look.stacks_again(first, before, after, at_most_s=20)
    assert read == [moving]
    assert [stack.pid for stack in again] == [still, moving]
    assert again[0].threads == first[0].threads
    assert again[0].at_ns == after.at_ns


@NEEDS_PYSPY
def test_arguments_give_small_numbers_and_nothing_else(stage: Stage) -> None:
    pid = stage.start(SERVING)
    asleep_in(pid, "nanosleep")
    (stack,) = look.stacks([pid], at_most_s=20)
    score = stack.threads[0].frames[0].function
    assert look.arguments(pid, frozenset({score})) == {score: {"src": "1", "dst": "3"}}
    assert look.arguments(pid, frozenset({"absent"})) == {}


@NEEDS_PYSPY
def test_a_lock_of_the_interpreter_that_a_c_call_holds(stage: Stage) -> None:
    pid = stage.start(
        """
        import ctypes, threading
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        sleep = ctypes.PyDLL(None).sleep
        print("ready", flush=True)
        sleep(60)
        """
    )
    taken = asleep_in(pid, "nanosleep")
    (stack,) = look.stacks([pid], at_most_s=20)
    assert stack.threads[0].owns_gil
    assert taken.processes[0].threads[0].state == "S"


@NEEDS_PYSPY
def test_native_stacks_measure_their_pause(stage: Stage) -> None:
    pid = stage.start(SERVING)
    asleep_in(pid, "nanosleep")
    (stack,) = look.native_stacks([pid], at_most_s=30)
    if "right" in stack.problem:
        pytest.skip(stack.problem)
    assert stack.problem == ""
    assert stack.native
    assert any("sleep" in frame.function for frame in stack.threads[0].frames)
    assert 0 < stack.pause_ms < 30_000
    until(lambda: seen(pid).state == "S")


@NEEDS_PYSPY
def test_a_stopped_process_is_read_but_never_traced(stage: Stage) -> None:
    pid = stage.start(SERVING)
    asleep_in(pid, "nanosleep")
    os.kill(pid, signal.SIGSTOP)
    until(lambda: seen(pid).state == "T")
    assert look.stacks([pid], at_most_s=20)[0].threads
    (stack,) = look.native_stacks([pid], at_most_s=20)
    assert (stack.threads, stack.problem) == ((), "it is stopped or traced by somebody else")
    assert seen(pid).state == "T"


def test_no_time_is_no_stack(stage: Stage) -> None:
    pid = stage.start(SERVING)
    (stack,) = look.stacks([pid], at_most_s=0)
    assert stack == Stack(pid, stack.at_ns, problem="no time was left to read its stack")


# --- what surrounds them


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A freezer group whose processes are thawed and moved out at the end."""
    if not os.access(FREEZER, os.W_OK) or not (FREEZER / "cgroup.procs").exists():
        pytest.skip("needs root and a version 1 freezer at /sys/fs/cgroup/freezer")
    group = FREEZER / f"grpo-doctor-test-{os.getpid()}"
    below = group / "below"
    below.mkdir(parents=True)
    with ExitStack() as cleaning:
        cleaning.callback(group.rmdir)
        cleaning.callback(below.rmdir)
        cleaning.callback(_move_out, below)
        cleaning.callback((group / "freezer.state").write_text, "THAWED")
        yield group


def _move_out(group: Path) -> None:
    for pid in (group / "cgroup.procs").read_text().split():
        (FREEZER / "cgroup.procs").write_text(pid)


@NEEDS_PYSPY
def test_a_frozen_group_above_is_seen_and_never_traced(stage: Stage, freezer: Path) -> None:
    pid = stage.start(SERVING)
    asleep_in(pid, "nanosleep")
    (freezer / "below" / "cgroup.procs").write_text(str(pid))
    (freezer / "freezer.state").write_text("FROZEN")
    until(lambda: (freezer / "freezer.state").read_text().strip() == "FROZEN")
    (limits,) = look.limits(job_of(pid))
    assert (limits.frozen, limits.freezer) == (True, str(freezer / "freezer.state"))
    assert look.stacks([pid], at_most_s=20)[0].threads
    (stack,) = look.native_stacks([pid], at_most_s=5)
    assert "uninterruptible sleep" in stack.problem or "frozen" in stack.problem
    Path(limits.freezer).write_text("THAWED")
    until(lambda: not look.limits(job_of(pid))[0].frozen)


def test_limits_of_an_ordinary_process(stage: Stage) -> None:
    pid = stage.start(READY + "os.nice(5); os.sched_setaffinity(0, {0}); time.sleep(60)")
    asleep_in(pid, "nanosleep")
    (limits,) = look.limits(job_of(pid))
    assert (limits.pid, limits.frozen, limits.nice, limits.cores) == (pid, False, 5, (0,))


def test_logs_are_found_by_name_and_by_redirection(stage: Stage) -> None:
    log, out = stage.folder / "train.log", stage.folder / "output"
    pid = stage.start(
        """
        import os, sys, time
        log = open(sys.argv[1], "w")
        for line in range(100):
            log.write(f"line {line}\\n")
        log.write("10%\\r100% \\x1b[31mdone\\x1b[0m api_key=hf_abcdefghijklmnopqrstuv")
        log.flush()
        out = open(sys.argv[2], "w")
        os.dup2(out.fileno(), 2)
        os.write(2, b"a warning\\n")
        open("/dev/null").read()
        print("ready", flush=True)
        time.sleep(60)
        """,
        str(log),
        str(out),
    )
    found = {tail.path: tail for tail in look.logs(job_of(pid))}
    assert set(found) == {str(log), str(out)}
    assert found[str(out)].lines == ("a warning",)
    lines = found[str(log)].lines
    assert lines[-2:] == ("line 99", "100% done api_key=[redacted]")
    assert len(lines) == 40
    assert found[str(log)].written_s_ago < 60


def test_the_host_and_the_disks_of_the_job(stage: Stage) -> None:
    pid = stage.start(READY + "f = open(sys.argv[1], 'w'); time.sleep(60)", str(stage.folder / "x"))
    facts = look.host(job_of(pid))
    assert facts.cores == os.cpu_count()
    assert facts.memory_available_bytes > 0
    assert facts.disks
    assert all(disk.total_bytes > 0 and not disk.error for disk in facts.disks)
    assert facts.kernel_problem == "" or "dmesg" in facts.kernel_problem


def test_a_full_disk_of_a_file_that_is_open_for_writing(stage: Stage) -> None:
    point = stage.folder / "small disk"
    point.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(point)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("needs root, to mount a file system")
    try:
        pid = stage.start(
            """
            import errno, os, sys, time
            file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
            try:
                while True:
                    os.write(file, bytes(1 << 16))
            except OSError as error:
                assert error.errno == errno.ENOSPC
            print("ready", flush=True)
            time.sleep(60)
            """,
            str(point / "checkpoint.pt"),
        )
        (disk,) = [one for one in look.host(job_of(pid)).disks if one.path == str(point)]
    finally:
        stage.end()
        subprocess.run(["umount", str(point)], check=True)
    assert (disk.kind, disk.total_bytes, disk.free_bytes) == ("tmpfs", 1 << 20, 0)


def test_engines_are_asked_on_their_port_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_doctor_probes.look.httpengines._AT_MOST_S", 20.0)
    program = """
        import http.server, sys
        class Engine(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                text = {"/health": "", "/metrics": open(sys.argv[1]).read()}[self.path].encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
        server = http.server.HTTPServer(("127.0.0.1", 0), Engine)
        other = http.server.HTTPServer(("127.0.0.1", 0), None)
        print("ready", flush=True)
        server.serve_forever()
        """
    metrics = stage.folder / "metrics"
    metrics.write_text(
        "# TYPE vllm:num_requests_running gauge\n"
        'vllm:num_requests_running{engine="0",model_name="m{}"} 3.0\n'
        'vllm:num_requests_running{engine="1",model_name="m"} 2.0\n'
        'vllm:generation_tokens_total{engine="0"} 1.5e+03\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.25\n'
        'vllm:e2e_request_latency_seconds_bucket{le="0.3"} 7\n'
    )
    pid = stage.start(program, str(metrics))
    port = listening_port(pid)
    command = f"vllm serve --port {port}"
    engine = Member(pid, 1, 0, "server", "vllm", command)
    (one,) = look.engines(Job("here", (engine, Member(pid, 1, 0, "rank", "r", command))))
    assert (one.pid, one.url, one.problem) == (pid, f"http://127.0.0.1:{port}", "")
    assert one.values == {
        "healthy": 1.0,
        "num_requests_running": 5.0,
        "generation_tokens_total": 1500.0,
        "kv_cache_usage": 0.25,
    }
    os.kill(pid, signal.SIGSTOP)
    until(lambda: seen(pid).state == "T")
    monkeypatch.setattr("grpo_doctor_probes.look.httpengines._AT_MOST_S", 0.2)
    (silent,) = look.engines(Job("here", (engine,)))
    assert silent.values is None
    assert "/health gave no answer" in silent.problem


PRINT_GPUS = """
from grpo_doctor_probes import look
for gpu in look.gpus():
    print(gpu.index, gpu.pids, gpu.memory_total_bytes, gpu.throttled_by, gpu.power_w is not None)
"""


@pytest.mark.skipif(compiler() is None, reason="no C compiler for the stand-in of NVML")
def test_gpus_and_the_processes_on_them(tmp_path: Path) -> None:
    driver = FakeNvml.build(tmp_path / "driver")
    printed = driver.run(
        PRINT_GPUS, orders="gpus 2\nprocess 0 77 1000\nprocess 0 78 1000\nlost 1 0 5"
    )
    assert printed == "0 (77, 78) 85899345920 ('power cap',) True\n"


def test_no_driver_is_no_gpu(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert FakeNvml(tmp_path / "empty").run(PRINT_GPUS).count("\n") in (0, len(look.gpus()))


def test_nothing_is_asked_where_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)):
        me = Member(os.getpid(), 1, 0, "server", "vllm", "vllm serve")
        assert look.engines(Job("here", (me,))) == ()
