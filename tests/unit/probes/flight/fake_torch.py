"""Libraries that export torch's dump functions as given versions do, and a process with them.

C stands in for C++: a std::string is returned by a hidden pointer, as any structure of 32 bytes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from grpo_doctor_probes.procstat import state_of
from tests.unit.probes.flight.sleeper import until

FR = "_ZN4c10d18dump_fr_trace_jsonB5cxx11Ebb"
FR_OF_BACKEND = (
    "_ZN4c10d18dump_fr_trace_jsonEbbRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
)
NCCL = "_ZN4c10d20dump_nccl_trace_jsonB5cxx11Ebb"

HEAD = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef struct { char *begin; unsigned long size; char inside[16]; } text;
static text say(const char *words) {
    text made = { strdup(words), strlen(words), "" };
    return made;
}
"""
BODIES = {
    "plain": """text NAME(_Bool all, _Bool active) {
        char made[100];
        sprintf(made, "{\\"entries\\": [], \\"all\\": %d, \\"active\\": %d}", all, active);
        return say(made);
    }""",
    "backend": """text NAME(_Bool all, _Bool active, const text *backend) {
        char made[200];
        int whole = backend->begin == backend->inside && !strcmp(backend->begin, "gloo");
        sprintf(made, "{\\"entries\\": [], \\"all\\": %d, \\"active\\": %d, \\"size\\": %lu,"
            " \\"whole\\": %d}", all, active, backend->size, whole);
        return say(made);
    }""",
    "empty": 'text NAME(_Bool all, _Bool active) { return say("{}"); }',
    "huge": """text NAME(_Bool all, _Bool active) {
        text made = { "", 1ul << 40, "" };
        return made;
    }""",
    "wild": """text NAME(_Bool all, _Bool active) {
        text made = { (char *)16, 100, "" };
        return made;
    }""",
    "faulty": 'text NAME(_Bool all, _Bool active) { *(volatile int *)8 = 1; return say(""); }',
    "throwing": "text NAME(_Bool all, _Bool active) { abort(); }",  # what C++ does in the end
    "cut": """
    #include <sys/prctl.h>
    __attribute__((constructor)) static void rename_thread(void) {
        prctl(15, "entra\\303", 0, 0, 0);
    }
    text NAME(_Bool all, _Bool active) { abort(); }""",
    "slow": 'text NAME(_Bool all, _Bool active) { sleep(2); return say("{}"); }',
    "dying": """
    #include <signal.h>
    text NAME(_Bool all, _Bool active) { kill(getpid(), SIGKILL); pause(); return say(""); }""",
    "locked": """
    #include <pthread.h>
    #include <sys/mman.h>
    text NAME(_Bool all, _Bool active) {
        char *pages = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pthread_mutex_t *mutex = (pthread_mutex_t *)(pages + 4096);
        pthread_mutex_lock(mutex);
        pthread_mutex_lock(mutex);
        return say("");
    }""",
    "none": "int other(void) { return 0; }",
}
PROCESS = """
import ctypes, sys, threading
for path in sys.argv[1:]:
    ctypes.CDLL(path)
wait = threading.Event()
threading.Thread(target=wait.wait, daemon=True).start()
print("ready", flush=True)
print(sys.stdin.readline().strip(), flush=True)
"""


def build(folder: Path, name: str, function: str, body: str) -> Path:
    """Library `name` in `folder`, with one function."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc to build a library that stands in for torch's")
    source = folder / f"{name}.c"
    source.write_text(HEAD + BODIES[body].replace("NAME", function))
    library = folder / name
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-w", "-Wl,--hash-style=gnu", "-o", library, source], check=True
    )
    return library


@contextmanager
def process(*libraries: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has them loaded, its helper thread asleep. It repeats a line and ends."""
    command = [sys.executable, "-c", PROCESS, *map(str, libraries)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout
        assert started.stdout.readline() == "ready\n"
        until(lambda: _both_sleep(started.pid))  # a thread that is awake can't be borrowed
        try:
            yield started
        finally:
            started.kill()


def _both_sleep(pid: int) -> bool:
    """The main thread first: when it reads, who waited for the interpreter is awake."""
    threads = sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda task: int(task.name))
    return [state_of(str(task)) for task in threads] == ["S", "S"]
