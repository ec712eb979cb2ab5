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
MIG0 = "MIG-fa4e0000-0000-5000-8000-000000000002"
MIG1 = "MIG-fa4e0000-0000-5000-8000-000000000003"

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


def test_what_a_device_lacks_is_listed_and_has_no_track(driver: FakeNvml, tmp_path: Path) -> None:
    orders = """
        fail nvmlDeviceGetPowerUsage 3
        fail nvmlDeviceGetPcieThroughput 3
        fail nvmlDeviceGetComputeRunningProcesses_v3 4
        fail nvmlDeviceGetComputeRunningProcesses_v2 4
        fail nvmlGpmQueryDeviceSupport 13
        gpus 1"""
    recording = record(driver, tmp_path, "\n".join(line.strip() for line in orders.splitlines()))
    assert recording.gpus[GPU0]["missing"] == [
        "power: not supported",
        "pcie_rx: not supported",
        "pcie_tx: not supported",
        "process_memory: insufficient permissions",
        "gpm: function not found",
    ]
    assert recording.names(GPU0) == EVERYTHING - {"gpu.power", "gpu.pcie_rx", "gpu.pcie_tx"}
    assert recording.notes == []


def test_a_passing_error_of_a_field_is_null(driver: FakeNvml, tmp_path: Path) -> None:
    recording = record(driver, tmp_path, "gpus 1\nfail nvmlDeviceGetPowerUsage 999 3 5")
    power = recording.values("gpu.power")
    # Call 0 was the probe, calls 1 and 2 ticks; 3 and 4 fail, in one row since both are null.
    assert power[2] is None
    assert power.count(None) == 1
    assert len(power) == 11
    assert None not in recording.values("gpu.util")
    assert recording.notes == []


def test_a_lost_gpu_becomes_null_and_is_tried_once_a_second(
    driver: FakeNvml, tmp_path: Path
) -> None:
    # Beats: 1 look-up, 1 probe, then one query a tick: lost from tick 4. Each try is a look-up.
    recording = record(driver, tmp_path, "gpus 2\ngpm 1\nprocess 1 77 5000\nlost 1 5 9", ticks=60)
    lost, back = recording.notes
    assert lost == f"GPU 1 ({GPU1}) does not answer (gpu is lost): trying again every second"
    assert back == f"GPU 1 ({GPU1}) answers again"
    # On a busy machine some have not had their turn when the GPU is lost.
    in_turn = {"gpu.pcie_rx", "gpu.pcie_tx", "gpu.process_memory"}
    for name in (EVERYTHING | in_turn) & recording.names(GPU1):
        values = recording.values(name, GPU1)
        assert values.count(None) == 1 or (name in in_turn and None not in values), name
        assert values[-1] is not None, name
    assert None not in recording.values("gpu.util")
    times = {row["note"]: row["t"] for row in recording.rows if "note" in row}
    assert 2.9e9 < times[back] - times[lost] < 4.1e9


def test_a_gpu_that_is_lost_from_the_start(driver: FakeNvml, tmp_path: Path) -> None:
    recording = record(driver, tmp_path, "gpus 2\nlost 1 0 5", ticks=5)
    assert recording.notes == ["GPU 1 cannot be opened (gpu is lost): it is not sampled"]
    assert set(recording.gpus) == {GPU0}


def test_mig_instances_have_their_own_rows(driver: FakeNvml, tmp_path: Path) -> None:
    recording = record(driver, tmp_path, "gpus 2\nmig 0 2\ngpm 0\nprocess 0 77 1000", clock="real")
    assert set(recording.gpus) == {GPU0, MIG0, MIG1, GPU1}
    instance = recording.gpus[MIG0]
    assert (instance["index"], instance["mig"], instance["parent"]) == (0, "1g.10gb", GPU0)
    assert instance["memory_total_bytes"] == 10 * 2**30
    assert "util: not supported on a MIG instance, see its GPU" in instance["missing"]
    assert "util: not supported while MIG is on" in recording.gpus[GPU0]["missing"]
    assert {"gpu.memory_used", "gpu.sm_active", "gpu.tensor_active"} <= recording.names(MIG0)
    assert not {"gpu.util", "gpu.power", "gpu.pcie_rx"} & recording.names(MIG0)
    assert {"gpu.power", "gpu.memory_used"} <= recording.names(GPU0)
    assert "gpu.util" not in recording.names(GPU0)
    assert recording.values("gpu.memory_used", MIG1) == [10 * 2**30 // 8]
    assert recording.values("gpu.sm_active", MIG1) == [61.5]


def test_gpm_is_read_in_pairs_far_enough_apart(driver: FakeNvml, tmp_path: Path) -> None:
    # The stand-in refuses pairs under 100 ms, in real time: ten times a second is too often.
    recording = record(driver, tmp_path, "gpus 1\ngpm 0", ticks=25, hz=20, clock="real")
    assert recording.gpus[GPU0]["missing"] == []
    assert recording.values("gpu.sm_active") == [61.5]
    assert recording.values("gpu.tensor_active") == [23.2]


def test_the_memory_of_each_process(driver: FakeNvml, tmp_path: Path) -> None:
    recording = record(driver, tmp_path, "gpus 1\nprocess 0 77 5000\nprocess 0 78 6000\n")
    tracks = [row for row in recording.tracks if row["name"] == "gpu.process_memory"]
    assert [(row["gpu"], row["pid"], row["unit"]) for row in tracks] == [
        (GPU0, 77, "bytes"),
        (GPU0, 78, "bytes"),
    ]
    values = {number: value for row in recording.ticks for number, value in row["v"].items()}
    assert [values[str(row["track"])] for row in tracks] == [5000, 6000]


def test_pcie_counters_are_read_at_most_once_a_second(driver: FakeNvml, tmp_path: Path) -> None:
    recording = record(driver, tmp_path, "gpus 1", ticks=41)
    # Each call gives another number: 4 s hold 4 or 5 of them.
    assert len(recording.values("gpu.pcie_rx")) in (4, 5)
    assert len(recording.values("gpu.util")) == 41


def test_ten_hertz_hold_for_eight_gpus_whose_counters_block_for_20_ms(
    driver: FakeNvml, tmp_path: Path
) -> None:
    orders = "gpus 8\npcie_block_ms 20\n" + "\n".join(f"gpm {gpu}" for gpu in range(8))
    recording = record(driver, tmp_path, orders, ticks=40)
    counters = {
        str(row["track"]) for row in recording.tracks if row["name"].startswith("gpu.pcie_")
    }
    # Each call gives another number, so each reading is written. The first tick finds out what the
    # GPUs support; after it two counters are 40% of a tick, where all would be 320% of it.
    read = [len(counters & row["v"].keys()) for row in recording.ticks[1:]]
    assert 1 <= max(read) <= 2
    assert len(counters) == 16


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1", [False, True]), (GPU0[:12], [True, False]), ("", [False, False]), ("1,0", [True, True])],
)
def test_gpus_that_the_job_may_not_use_are_marked(
    driver: FakeNvml, tmp_path: Path, value: str, expected: list[bool]
) -> None:
    recording = record(driver, tmp_path, "gpus 2", ticks=2, CUDA_VISIBLE_DEVICES=value)
    assert [recording.gpus[uuid]["visible"] for uuid in (GPU0, GPU1)] == expected
    assert recording.names(GPU1)


def test_a_gpu_order_that_only_cuda_knows_is_noted(driver: FakeNvml, tmp_path: Path) -> None:
    orders = "gpus 2\nname 1 NVIDIA T4"
    recording = record(driver, tmp_path, orders, ticks=1, CUDA_VISIBLE_DEVICES="0")
    assert len(recording.notes) == 1
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in recording.notes[0]


def test_no_gpus_behind_the_driver(driver: FakeNvml, tmp_path: Path) -> None:
    recording = record(driver, tmp_path, "gpus 0", ticks=3)
    assert recording.notes == ["the NVIDIA driver shows no GPU here: GPU samples are off"]
    assert recording.rows[-1]["end"] is True


def test_a_driver_that_does_not_match_its_library(driver: FakeNvml, tmp_path: Path) -> None:
    recording = record(driver, tmp_path, "fail nvmlInitWithFlags 18", ticks=3)
    (note,) = recording.notes
    assert note.startswith("no NVIDIA driver: GPU samples are off (nvmlInit: RM has detected")


def test_no_driver_at_all(tmp_path: Path) -> None:
    nothing = tmp_path / "empty"
    nothing.mkdir()
    probe = "import pynvml\ntry:\n pynvml.nvmlInit()\n print(1)\nexcept pynvml.NVMLError: print(0)"
    if FakeNvml(nothing).run(probe).strip() == "1":
        pytest.skip("this host has an NVIDIA driver")
    recording = record(FakeNvml(nothing), tmp_path / "run", "", ticks=15)
    assert recording.notes == [
        "no NVIDIA driver: GPU samples are off (libnvidia-ml.so.1 not found)"
    ]
    assert recording.tracks == []
    assert len(recording.ticks) >= 1


def test_a_driver_that_is_older_than_version_2_of_the_structures(tmp_path: Path) -> None:
    old = FakeNvml.build(tmp_path / "old", "OLD_DRIVER")
    recording = record(old, tmp_path / "run", "gpus 1\nprocess 0 77 5000", ticks=12)
    assert recording.names(GPU0) == EVERYTHING | {"gpu.process_memory"}
    assert recording.values("gpu.memory_used") == [20 * 2**30]
    assert recording.values("gpu.throttle") == [4]
    assert recording.gpus[GPU0]["missing"] == ["gpm: function not found"]


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


def test_an_nvml_that_never_answers_silences_no_other_source(
    driver: FakeNvml, tmp_path: Path
) -> None:
    driver.run(SILENT, str(tmp_path), "115", orders="gpus 2\nhang nvmlInitWithFlags -1 0")
    recording = Recording(sample_path(tmp_path, "a"))
    (note,) = [note for note in recording.notes if "NVML" in note]
    assert note.startswith("NVML has not answered for 10 s")
    host = next(row["track"] for row in recording.tracks if row["name"].startswith("host."))
    assert host is not None
    (end,) = [row for row in recording.rows if "end" in row]
    # One tick waited for it, and a busy machine is late by itself; rows are of changed values only.
    assert end["ticks"] >= 115
    assert end["late_ticks"] < 20


def test_samples_go_on_when_nvml_answers_again(driver: FakeNvml, tmp_path: Path) -> None:
    free = tmp_path / "free"
    orders = f"gpus 1\npcie_block_ms 1\nno_file {free}\nhang nvmlInitWithFlags -1 0"
    driver.run(SILENT, str(tmp_path), "110", str(free), orders=orders)
    recording = Recording(sample_path(tmp_path, "a"))
    silent, back = [note for note in recording.notes if "NVML" in note]
    assert silent.startswith("NVML has not answered")
    assert back.startswith("NVML answers again, after ")
    assert "gpu.util" in recording.names(GPU0)
