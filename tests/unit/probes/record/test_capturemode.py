"""The capture mode of a thread, set by the runtime that is loaded: by a stand-in of it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_doctor_probes.record import cuda
from grpo_doctor_probes.record.cuda import capture_mode

RUNTIME = """
int fails = 0;
static __thread int mode = 0;
int cudaThreadExchangeStreamCaptureMode(int *given) {
    int before = mode;
    if (fails) return fails;
    mode = *given;
    *given = before;
    return 0;
}
int now(void) { return mode; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runtime of which nothing is loaded yet."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc to build a library that stands in for CUDA's runtime")
    folder = tmp_path_factory.mktemp("cuda")
    (folder / "runtime.c").write_text(RUNTIME)
    built = folder / "libcudart.so.12"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-o", str(built), str(folder / "runtime.c")], check=True
    )
    return built


@pytest.fixture
def runtime(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ctypes.CDLL]:
    """The runtime, loaded and the only one in what stands for our mappings."""
    loaded = ctypes.CDLL(str(library))
    lines = Path("/proc/self/maps").read_text().splitlines(keepends=True)
    (tmp_path / "maps").write_text("".join(line for line in lines if str(library) in line))
    monkeypatch.setattr(cuda, "MAPS", str(tmp_path / "maps"))
    yield loaded
    ctypes.c_int.in_dll(loaded, "fails").value = 0


def test_a_thread_is_relaxed_within_and_as_before_afterwards(runtime: ctypes.CDLL) -> None:
    mode = capture_mode()
    assert mode is not None
    for _ in range(2):
        with mode:
            assert runtime.now() == 2
        assert runtime.now() == 0
    with pytest.raises(ZeroDivisionError), mode:
        _ = 1 / 0
    assert runtime.now() == 0


def test_where_the_runtime_refuses_nothing_is_asked(runtime: ctypes.CDLL) -> None:
    mode = capture_mode()
    assert mode is not None
    ctypes.c_int.in_dll(runtime, "fails").value = 100
    with pytest.raises(OSError, match="CUDA error 100"), mode:
        pytest.fail("it was asked")


@pytest.mark.parametrize(
    "text",
    ["", "7f00-7f01 r--p 00000000 08:01 7 /gone/libcudart.so.12\n", "7f00-7f01 r--p 0 0 0\n"],
)
def test_without_a_runtime_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "maps").write_text(text)
    monkeypatch.setattr(cuda, "MAPS", str(tmp_path / "maps"))
    assert capture_mode() is None
    monkeypatch.setattr(cuda, "MAPS", str(tmp_path / "missing"))
    assert capture_mode() is None
