"""The GPU sampler through the real pynvml, on a compiled stand-in for the driver's library."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from grpo_doctor_probes.samplers.file import sample_path
from tests.fake_nvml.build import FakeNvml, compiler

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.heavy,
    pytest.mark.skipif(compiler() is None, reason="no C compiler for the stand-in of NVML"),
]

GPU0 = "GPU-fa4e0000-0000-4000-8000-000000000000"
GPU1 = "GPU-fa4e0001-0000-4000-8000-000000000000"

# Samples GPUs alone; with `jump` the clock jumps, else it is the real one.
PROGRAM = """
import os, sys
from pathlib import Path
from grpo_doctor_probes.samplers.gpu import GpuSampler
from grpo_doctor_probes.samplers.sampler import Sampling
from grpo_doctor_probes.samplers.sampler import SystemClock

run_dir, ticks, hz, mode = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]

class Jumping(SystemClock):
    now_ns, left = 1000 * 10**9, ticks
    def monotonic_ns(self):
        return self.now_ns
    def wait_until(self, deadline_ns, stop):
        self.left -= 1
        if self.left <= 0:
            return stop.wait()
        self.now_ns = deadline_ns
        return stop.is_set()

gpu = GpuSampler(os.environ, answer_s=60)
sampling = Sampling(run_dir, "a", os.getpid(), hz, sources=[gpu],
                    clock=Jumping() if mode == "jump" else None)
sampling.start()
assert sampling.wait_for_ticks(ticks, 60)
print(sampling.latest().get("gpu.util"))
sampling.stop()
assert sampling.problem is None, sampling.problem
"""


class Recording:
    """A sample file, with the values of each track carried forward."""

    def __init__(self, path: Path) -> None:
        self.rows: list[dict[str, Any]] = [json.loads(row) for row in path.read_text().splitlines()]
        self.tracks = [row for row in self.rows if "track" in row]
        self.gpus = {row["gpu"]: row for row in self.rows if "memory_total_bytes" in row}
        self.notes = [row["note"] for row in self.rows if "note" in row]
        self.ticks = [row for row in self.rows if "v" in row]

    def names(self, gpu: str) -> set[str]:
        return {row["name"] for row in self.tracks if row.get("gpu") == gpu}

    def values(self, name: str, gpu: str = GPU0) -> list[float | None]:
        """Every value that was written for a track, in order."""
        (track,) = [row["track"] for row in self.tracks if (row["name"], row["gpu"]) == (name, gpu)]
        return [row["v"][str(track)] for row in self.ticks if str(track) in row["v"]]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    return FakeNvml.build(tmp_path_factory.mktemp("nvml"))


def record(
    driver: FakeNvml,
    tmp_path: Path,
    orders: str,
    *,
    ticks: int = 12,
    hz: float = 10,
    clock: str = "jump",
    **environ: str,
) -> Recording:
    arguments = (str(tmp_path), str(ticks), str(hz), clock)
    driver.run(PROGRAM, *arguments, orders="pcie_block_ms 1\n" + orders, environ=environ)
    return Recording(sample_path(tmp_path, "a"))


EVERYTHING = {
    f"gpu.{name}"
    for name in ("util", "memory_used", "power", "sm_clock", "throttle", "pcie_rx", "pcie_tx")
}


def test_two_healthy_gpus(driver: FakeNvml, tmp_path: Path) -> None:
    recording = record(driver, tmp_path, "gpus 2\nname 1 NVIDIA H200")
    assert recording.notes == []
    assert recording.names(GPU0) == recording.names(GPU1) == EVERYTHING
    assert recording.gpus[GPU1] == {
        "gpu": GPU1,
        "index": 1,
        "name": "NVIDIA H200",
        "memory_total_bytes": 80 * 2**30,
        "mig": None,
        "visible": True,
        "missing": ["gpm: not supported (compute capability below 9.0)"],
    }
    # The probe before the first tick made query 0.
    assert recording.values("gpu.util") == list(range(1, 13))
    assert recording.values("gpu.util", GPU1) == [50 + tick for tick in range(1, 13)]
    assert recording.values("gpu.memory_used") == [10 * 2**30]
    assert recording.values("gpu.power")[:3] == [125.5, 126.5, 127.5]
    assert recording.values("gpu.sm_clock") == [1980]
    assert recording.values("gpu.throttle")[:2] == [4, 0]
    # The sums of KB/s in 20 ms, as bytes; the probe made call 1.
    assert recording.values("gpu.pcie_tx")[0] == 1002 * 1000
    assert recording.values("gpu.pcie_rx")[0] == 2002 * 1000


def test_a_lost_gpu_becomes_null(driver: FakeNvml, tmp_path: Path) -> None:
    # Beats: 1 look-up, 1 probe, then one query a tick: lost from tick 4.
    recording = record(driver, tmp_path, "gpus 2\ngpm 1\nprocess 1 77 5000\nlost 1 5 9", ticks=60)
    assert recording.notes == [
        f"GPU 1 ({GPU1}) does not answer (gpu is lost): it is not sampled any more"
    ]
    for name in EVERYTHING & recording.names(GPU1):
        values = recording.values(name, GPU1)
        assert values.count(None) == 1, name
        assert values[-1] is None, name
    assert None not in recording.values("gpu.util")


def test_a_partitioned_gpu_is_sampled_as_a_whole(driver: FakeNvml, tmp_path: Path) -> None:
    recording = record(driver, tmp_path, "gpus 2\nmig 0 2\nprocess 0 77 1000")
    assert [recording.gpus[gpu]["mig"] for gpu in (GPU0, GPU1)] == ["on", None]
    assert "util: not supported while MIG is on" in recording.gpus[GPU0]["missing"]
    assert {"gpu.power", "gpu.memory_used"} <= recording.names(GPU0)
    assert "gpu.util" not in recording.names(GPU0)


def test_a_driver_before_510_has_no_memory(tmp_path: Path) -> None:
    old = FakeNvml.build(tmp_path / "old", "OLD_DRIVER")
    recording = record(old, tmp_path / "run", "gpus 1\nprocess 0 77 5000", ticks=12)
    assert recording.names(GPU0) == EVERYTHING - {"gpu.memory_used"}
    assert recording.values("gpu.throttle") == [4]
    assert recording.gpus[GPU0]["missing"] == [
        "memory_used: function not found", "process_memory: this driver is too old for it",
        "gpm: function not found",
    ]  # fmt: skip


SILENT = """
import os, sys, time
from pathlib import Path
from grpo_doctor_probes.samplers.gpu import GpuSampler
from grpo_doctor_probes.samplers.host import HostSampler
from grpo_doctor_probes.samplers.sampler import Sampling

gpu = GpuSampler(os.environ)
sources = [HostSampler(os.getpid()), gpu]
sampling = Sampling(Path(sys.argv[1]), "a", os.getpid(), 10, sources=sources)
sampling.start()
assert sampling.wait_for_ticks(int(sys.argv[2]), 100)
if len(sys.argv) > 3:
    Path(sys.argv[3]).touch()
    deadline = time.monotonic() + 60
    while "gpu.util" not in sampling.latest() and time.monotonic() < deadline:
        time.sleep(0.1)
sampling.stop()
"""


def test_samples_go_on_when_nvml_answers_again(driver: FakeNvml, tmp_path: Path) -> None:
    free = tmp_path / "free"
    orders = f"gpus 1\npcie_block_ms 1\nno_file {free}\nhang nvmlInitWithFlags -1 0"
    driver.run(SILENT, str(tmp_path), "110", str(free), orders=orders)
    recording = Recording(sample_path(tmp_path, "a"))
    silent, back = [note for note in recording.notes if "NVML" in note]
    assert silent.startswith("NVML has not answered")
    assert back.startswith("NVML answers again, after ")
    assert "gpu.util" in recording.names(GPU0)
