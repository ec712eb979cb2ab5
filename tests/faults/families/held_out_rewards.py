"""Held out: rewards and what they start or ask, as users have reported it."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import http.client
import http.server
import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.faults import reward_server
from tests.faults.host import cgroup, eventually, http_server, memory
from tests.faults.registry import MAY_ANSWER, Facts, Outside, Scene, fault

HOUR_S = 3600
CHILD = ("child-stuck", "reward-blocked")
BUSY = ("stuck", "slow")
ASKS = ("stuck", "slow")
MEGABYTE = 1 << 20


@fault("a verifier that catches its own time limit", "reward-busy", phase="reward", states=BUSY,
       busy=True)  # fmt: skip
def verify(scene: Scene) -> None:
    def give_up(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, give_up)
    scene.takes_effect()
    value = 1
    while value:
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        try:
            while True:
                value = (value * 48271) % 2147483647
        except Exception:  # noqa: BLE001 - what users write around a parser
            continue


@fault("an asyncio queue is joined, its consumer has failed", "reward-blocked", phase="reward")
def score_by_queue(scene: Scene) -> None:
    async def consume(answers: asyncio.Queue[str]) -> None:
        while True:
            int(await answers.get())
            answers.task_done()

    async def score() -> None:
        answers: asyncio.Queue[str] = asyncio.Queue()
        for answer in ("4", "four", "5"):
            answers.put_nowait(answer)
        consumer = asyncio.create_task(consume(answers))
        await asyncio.sleep(0.1)
        assert consumer.done()
        scene.takes_effect()
        await answers.join()

    asyncio.run(score())


@fault("a command waits for a daemon that is silent", *CHILD, phase="reward", needs=http_server,
       states=MAY_ANSWER)  # fmt: skip
def run_in_container(scene: Scene) -> None:
    client = (
        "import socket, sys\n"
        "daemon = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "daemon.sendall(b'POST /containers/create HTTP/1.1\\r\\n\\r\\n')\n"
        "daemon.recv(1)\n"
    )
    scene.takes_effect()
    command = [sys.executable, "-S", "-c", client, str(scene.facts["port"])]
    subprocess.run(command, capture_output=True, check=False)


@fault("waiting for a PID to disappear that is a zombie", *CHILD, phase="reward", states=ASKS)
def wait_for_sandbox(scene: Scene) -> None:
    sandbox = subprocess.Popen(["true"])
    scene.takes_effect()
    while Path(f"/proc/{sandbox.pid}").exists():
        time.sleep(0.25)


@fault("a time limit whose signal the program ignores", *CHILD, phase="reward")
def run_limited(scene: Scene) -> None:
    scene.takes_effect()
    program = f'trap "" TERM; while :; do sleep {HOUR_S}; done'
    subprocess.run(["timeout", "1", "sh", "-c", program], check=False)


@fault("a program under test fills its pseudo-terminal", *CHILD, phase="reward")
def run_in_terminal(scene: Scene) -> None:
    ours, theirs = os.openpty()
    code = "import sys; sys.stdout.write('.' * 1000000)"
    program = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=theirs)
    os.close(theirs)
    scene.takes_effect()
    program.wait()
    os.close(ours)


@fault("a prover waits for the end of its command", *CHILD, phase="reward")
def ask_prover(scene: Scene) -> None:
    code = "import sys\nfor line in sys.stdin: print('ok', flush=True)"
    prover = subprocess.Popen(
        [sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert prover.stdin is not None
    assert prover.stdout is not None
    prover.stdin.write(b'{"cmd": "theorem t : 1 = 1"}')  # without the empty line that ends it
    prover.stdin.flush()
    scene.takes_effect()
    prover.stdout.readline()


@fault("two pipes, both full", *CHILD, phase="reward")
def format_code(scene: Scene) -> None:
    formatter = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert formatter.stdin is not None
    scene.takes_effect()
    formatter.stdin.write(bytes(MEGABYTE))
    formatter.communicate()


def _grade_together(meeting: Any) -> None:
    meeting.wait()


@fault("workers meet at a barrier for one more than there are", *CHILD, phase="reward")
def grade_together(scene: Scene) -> None:
    context = multiprocessing.get_context("fork")
    meeting = context.Barrier(3)
    workers = [context.Process(target=_grade_together, args=(meeting,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    scene.takes_effect()
    for worker in workers:
        worker.join()


@fault("two long answers compared letter by letter", "reward-busy", phase="reward", states=BUSY,
       busy=True)  # fmt: skip
def compare_programs(scene: Scene) -> None:
    scene.takes_effect()
    answer, solution = "ab" * 20_000, "ba" * 20_000
    difflib.SequenceMatcher(None, answer, solution, autojunk=False).ratio()


@contextlib.contextmanager
def stoppable_judge() -> Iterator[Facts]:
    """A silent judge in a session of its own: `port`, `judge` its PID."""
    command = [sys.executable, "-S", str(reward_server.__file__), "0"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as server:
        assert server.stdout is not None
        try:
            yield {"port": int(server.stdout.readline()), "judge": server.pid}
        finally:
            server.kill()


def stop_judge(outside: Outside) -> None:
    os.kill(outside.facts["judge"], signal.SIGSTOP)
    (outside.folder / "acted").touch()


@fault("the judge's process is stopped", "reward-blocked", phase="reward", needs=stoppable_judge,
       outside=stop_judge)  # fmt: skip
def ask_stopped_judge(scene: Scene) -> None:
    scene.arrived()
    eventually("the judge is stopped", (scene.folder / "acted").exists)
    judge = http.client.HTTPConnection("127.0.0.1", scene.facts["port"])
    judge.request("POST", "/score", b"{}")
    scene.takes_effect()
    judge.getresponse()


@fault("a reward server in the rank asks the thread that waits for it", "reward-blocked",
       "thread-deadlock", phase="reward")  # fmt: skip
def ask_own_server(scene: Scene) -> None:
    questions: queue.Queue[str] = queue.Queue()
    answers: queue.Queue[bytes] = queue.Queue()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            questions.put(self.path)
            self.wfile.write(answers.get())  # of the main thread, which owns the model

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, name="rewards", daemon=True).start()
    client = http.client.HTTPConnection("127.0.0.1", server.server_port)
    client.request("POST", "/score", b"")
    scene.takes_effect()
    client.getresponse()
    answers.put(questions.get().encode())


@fault("no more processes allowed, tried again and again", "reward-blocked", phase="reward",
       states=ASKS, needs=lambda: cgroup("pids"))  # fmt: skip
def run_when_possible(scene: Scene) -> None:
    group = Path(scene.facts["cgroup"])
    (group / "pids.max").write_text("1")
    (group / "cgroup.procs").write_text(str(os.getpid()))
    scene.takes_effect()
    while True:
        try:
            subprocess.run(["true"], check=True)
        except OSError:
            time.sleep(1)


def _render(group: str) -> int:
    Path(group, "cgroup.procs").write_text(str(os.getpid()))
    return len(bytearray(b"x" * (256 * MEGABYTE)))


@fault("the kernel kills a worker of a pool for its memory", "oom-killed", "child-stuck",
       phase="reward", states=("stuck", "dead"), needs=memory)  # fmt: skip
def render_in_a_pool(scene: Scene) -> None:
    group = Path(scene.facts["cgroup"])
    (group / "memory.limit_in_bytes").write_text(str(48 * MEGABYTE))
    pool = multiprocessing.get_context("fork").Pool(2)
    scene.takes_effect()
    pool.map(_render, [str(group)])
