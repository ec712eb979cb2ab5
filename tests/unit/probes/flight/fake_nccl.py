"""A job whose NCCL recorder is laid out as torch's, and whose device has a lock of its own.

Two mutexes: the recorder's, which each operation takes to be recorded, and that of the CUDA
context, which a synchronizing thread holds and an event query waits for. The function to dump
takes both if entries are wanted, the recorder's first, as in torch 2.14 and 2.15.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.probes.flight.sleeper import until

# The head of torch's recorder, by its members: what is read from outside lies in it.
LIBRARY = r"""
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <unistd.h>
#include <vector>

static std::mutex &context = *new std::mutex;  // CUDA's, on the heap as there
static std::atomic<int> queries{0};  // calls of CUDA's, of any thread

static bool query() {
    queries++;
    std::lock_guard<std::mutex> guard(context);
    return false;
}

namespace c10d {

struct Recorder {
    bool enabled_ = true;
    bool stacks_ = false;
    std::mutex mutex_;
    std::vector<long> entries_;
    size_t most_ = 2000;
    size_t next_ = 0;
    size_t id_ = 0;

    static Recorder *get() {
        static Recorder *instance = new Recorder();
        return instance;
    }
    void record() {
        std::lock_guard<std::mutex> guard(mutex_);
        if (entries_.size() < most_) entries_.push_back(id_);
        id_++;
    }
    std::string dump(bool entries, bool active) {
        std::string said = "{\"pg_config\": {}, \"pg_status\": {\"0\": "
            + std::to_string(id_) + "}";
        if (entries) {
            std::lock_guard<std::mutex> guard(mutex_);
            query();
            said += ", \"entries\": [1]";
        }
        return said + ", \"all\": " + std::to_string(entries) + ", \"active\": "
            + std::to_string(active) + "}";
    }
};

__attribute__((visibility("default"))) std::string dump_nccl_trace_json(bool entries, bool active) {
    return Recorder::get()->dump(entries, active);
}

}

extern "C" {
__attribute__((visibility("default"))) void record() { c10d::Recorder::get()->record(); }
__attribute__((visibility("default"))) int asked() { return queries; }
__attribute__((visibility("default"))) void synchronize(int descriptor) {
    char byte;
    std::lock_guard<std::mutex> guard(context);
    while (read(descriptor, &byte, 1) < 1) {}
}
__attribute__((visibility("default"))) void hold_recorder(int descriptor) {
    char byte;
    std::lock_guard<std::mutex> guard(c10d::Recorder::get()->mutex_);
    while (read(descriptor, &byte, 1) < 1) {}
}
}
"""
# Its main thread works and synchronizes; a helper sleeps. What it does next is said on its stdin.
PROCESS = """
import ctypes, os, sys, threading
cpu, cuda = (ctypes.CDLL(path) for path in sys.argv[1:3])
wait = threading.Event()
threading.Thread(target=wait.wait, daemon=True).start()
cuda.record()
print("ready", flush=True)
while word := os.read(0, 1):
    if word == b"s":
        print("synchronizing", flush=True)
        cuda.synchronize(0)
    elif word == b"h":
        print("holding", flush=True)
        cuda.hold_recorder(0)
    elif word == b"r":
        cuda.record()
    print("done", cuda.asked(), flush=True)
"""


@dataclass
class Job:
    """The process and its main thread's words."""

    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.process.pid

    def say(self, word: bytes) -> str:
        """Its next line after `word`."""
        assert self.process.stdin
        self.process.stdin.write(word)
        self.process.stdin.flush()
        return self.hear()

    def hear(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().decode().strip()


def library(folder: Path) -> Path:
    """`libtorch_cuda.so` in `folder`."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++ to build a library that stands in for torch's")
    source, built = folder / "recorder.cpp", folder / "libtorch_cuda.so"
    source.write_text(LIBRARY)
    flags = ["-shared", "-fPIC", "-O2", "-fvisibility=hidden", "-Wl,--hash-style=gnu"]
    subprocess.run(["g++", *flags, "-o", built, source], check=True)
    return built


@contextmanager
def job(cpu: Path, cuda: Path) -> Iterator[Job]:
    """A job that has both libraries loaded, its main thread waiting for a word."""
    command = [sys.executable, "-c", PROCESS, str(cpu), str(cuda)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        started = Job(process)
        assert started.hear() == "ready"
        until(lambda: asleep_in_read(started))
        try:
            yield started
        finally:
            process.kill()


def asleep_in_read(started: Job) -> bool:
    """Whether its main thread waits for a word or a device."""
    file = Path(f"/proc/{started.pid}/task/{started.pid}/syscall")
    return file.read_text().split()[:2] in (["0", "0x0"], ["63", "0x0"])
