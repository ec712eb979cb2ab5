"""Whether a host that uses a core at one line computes, or waits for its device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.model import view
from grpo_doctor.hang.model.process.proc import index
from grpo_doctor.hang.model.process.progress import is_device_library, spins_in
from grpo_doctor.hang.model.view import Process
from grpo_doctor_probes.evidence import Evidence, Frame, Locals, Position, PythonThread, Thread
from tests.evidence import FIRST_NS, TORCH, EvidenceBuilder, collective, frames

ITEM = frames("compute_loss /home/me/train.py:5", "main /home/me/train.py:9")
CUDA = TORCH.replace("distributed", "cuda")
SYNCHRONIZE = frames(f"synchronize {CUDA}/__init__.py:1085", "step /home/me/train.py:5")
BARRIER = frames(f"barrier {TORCH}/distributed_c10d.py:4900", "step /home/me/train.py:5")


def spinning(stack: tuple[Frame, ...] = ITEM) -> EvidenceBuilder:
    build = EvidenceBuilder(ranks=1, recorded=False)
    process = build.rank(0)
    process.works(stack, moves=False)
    events = Thread(900, "cuda-EvtHandlr", "S", last_ran_ns=1)
    process.threads = [(PythonThread(900, "", ()), events)]
    return build


def at(*callers: str, tid: int = 100, library: str = "") -> tuple[Position, ...]:
    return tuple(Position(100, tid, FIRST_NS, library or name, name) for name in callers)


def digests(*texts: str) -> tuple[Locals, ...]:
    return tuple(Locals(100, FIRST_NS, text) for text in texts)


def kind(evidence: Evidence) -> str:
    return index(evidence)[100].activity.kind


def proc(evidence: Evidence) -> Process:
    return view.build(evidence).by_rank[0]


def test_a_line_of_the_user_in_the_driver_spins() -> None:
    evidence = replace(spinning().build(), positions=at("libcuda.so.1", "libcuda.so.535.104"))
    assert kind(evidence) == "spinning"
    assert not index(evidence)[100].activity.progresses
    assert not index(evidence)[100].activity.progressed
    assert proc(evidence).device_wait


def test_through_the_c_library_it_is_the_caller_that_counts() -> None:
    evidence = replace(
        spinning().build(), positions=at("libcuda.so.1", "libcuda.so.1", library="libc.so.6")
    )
    assert kind(evidence) == "spinning"


@pytest.mark.parametrize("library", ["libpython3.11.so.1.0", "libopenblas.so", "libcublasLt.so.12"])
def test_other_code_computes(library: str) -> None:
    evidence = replace(spinning().build(), positions=at(library, library, "libcuda.so.1"))
    assert kind(evidence) == "busy"
    assert not proc(evidence).device_wait


@pytest.mark.parametrize("stack", [SYNCHRONIZE, BARRIER])
def test_lines_of_torch_that_wait_for_the_device_spin(stack: tuple[Frame, ...]) -> None:
    assert kind(spinning(stack).build()) == "spinning"


def test_who_packs_objects_for_a_collective_computes() -> None:
    packs = frames(
        f"_object_to_tensor {TORCH}/distributed_c10d.py:3000", "main /home/me/train.py:9"
    )
    assert kind(spinning(packs).build()) == "busy"


def test_a_line_of_the_user_that_was_not_looked_into_is_busy() -> None:
    assert kind(spinning().build()) == "busy"


def test_a_refused_position_says_nothing() -> None:
    refused = (Position(100, 100, FIRST_NS, problem="Operation not permitted"),)
    assert kind(replace(spinning().build(), positions=refused)) == "busy"


def test_other_variables_at_the_same_line_are_progress() -> None:
    evidence = replace(spinning(SYNCHRONIZE).build(), locals_seen=digests("a", "b"))
    assert kind(evidence) == "working"


def test_the_same_variables_are_none() -> None:
    evidence = replace(spinning(SYNCHRONIZE).build(), locals_seen=digests("a", "", "a"))
    assert kind(evidence) == "spinning"


def test_variables_of_a_loop_that_computes_are_no_progress() -> None:
    evidence = replace(
        spinning().build(), positions=at("libpython3.11.so.1.0"), locals_seen=digests("a", "b")
    )
    assert kind(evidence) == "busy"


def test_a_core_in_use_and_no_stack_is_unknown() -> None:
    evidence = spinning().build()
    hidden = tuple(
        tuple(replace(stack, threads=(), problem="no right") for stack in look)
        for look in evidence.stacks
    )
    assert kind(replace(evidence, stacks=hidden)) == "unknown"


def test_threads_of_nccl_are_no_work_of_a_rank() -> None:
    build = EvidenceBuilder(ranks=1)
    evidence = _with_busy_thread(build)
    assert index(evidence)[100].activity.library_works
    proxy = at("libnccl.so.2", "libnccl.so.2", tid=150)
    assert not index(replace(evidence, positions=proxy))[100].activity.library_works


def _with_busy_thread(build: EvidenceBuilder) -> Evidence:
    """A native thread that has the process's name and uses a core."""
    evidence = build.build()
    looks = []
    for count, look in enumerate(evidence.looks):
        (process,) = look.processes
        beside = Thread(150, "python", "R", cpu_ticks=100 + count * 110)
        looks.append(
            replace(look, processes=(replace(process, threads=(*process.threads, beside)),))
        )
    return replace(evidence, looks=tuple(looks))


def test_a_wait_asleep_in_the_driver_is_one_for_the_device() -> None:
    build = EvidenceBuilder(ranks=1)
    build.rank(0).stack = ITEM
    build.rank(0).blocks("poll", "/dev/nvidia0")
    assert proc(build.build()).device_wait


def test_who_asks_whether_a_file_is_there_only_polls() -> None:
    build = EvidenceBuilder(ranks=1)
    process = build.rank(0)
    process.stack = frames("await_answer /home/me/reward.py:5", "main /home/me/train.py:9")
    process.later_stack = frames(
        "stat /usr/lib/python3.11/pathlib.py:1013",
        "exists /usr/lib/python3.11/pathlib.py:1235",
        "await_answer /home/me/reward.py:4",
        "main /home/me/train.py:9",
    )
    process.wakes = 30
    assert kind(build.build()) == "working"
    assert kind(_asleep(build.build())) == "polling"


def test_who_left_a_collective_to_sleep_got_on() -> None:
    build = EvidenceBuilder(ranks=1)
    build.rank(0).stack = collective("all_reduce", "main /home/me/train.py:9")
    build.rank(0).later_stack = frames("main /home/me/train.py:12")
    build.rank(0).wakes = 30
    assert kind(_asleep(build.build())) == "working"


def _asleep(evidence: Evidence) -> Evidence:
    """With its main thread in clock_nanosleep, as it is nearly always."""
    looks = []
    for look in evidence.looks:
        (process,) = look.processes
        main = replace(process.threads[0], syscall=230)
        looks.append(replace(look, processes=(replace(process, threads=(main,)),)))
    return replace(evidence, looks=tuple(looks))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("libcuda.so.1", True),
        ("libcuda.so.535.104.05", True),
        ("libcudart-1f3a.so.12", True),
        ("libcudart.so.12", True),
        ("libnccl.so.2", True),
        ("libamdhip64.so.6", True),
        ("libcublas.so.12", False),
        ("libnvidia-ptxjitcompiler.so.1", False),
        ("libcudnn.so.9", False),
        ("libtorch_cuda.so", False),
        ("libpython3.11.so.1.0", False),
    ],
)
def test_drivers_are_known_by_their_files(name: str, expected: bool) -> None:
    assert is_device_library(name) is expected


def position(library: str = "", caller: str = "", problem: str = "") -> Position:
    return Position(100, 100, FIRST_NS, library, caller, problem=problem)


DRIVER, CODE = "libcuda.so.1", "libopenblas.so"


@pytest.mark.parametrize(
    ("positions", "spins"),
    [
        ((), None),
        ((position(problem="refused"),), None),
        ((position(),), None),
        ((position(DRIVER, problem="refused"),), None),
        ((position(DRIVER),), True),  # without its callers
        ((position(caller=DRIVER),), True),
        ((position("libc.so.6", DRIVER),), True),
        ((position(DRIVER, CODE),), False),
        ((position(DRIVER), position(CODE)), False),  # who launches kernels is there as well
        ((position(DRIVER), position(DRIVER), position(CODE)), True),
        ((position(DRIVER), position(CODE), position(problem="refused"), position()), False),
    ],
)
def test_whether_a_thread_was_mostly_in_a_driver(
    positions: tuple[Position, ...], spins: bool | None
) -> None:
    assert spins_in(positions) is spins
