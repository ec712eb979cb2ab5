"""The GPU sampler on a real GPU: skipped where there is no NVIDIA driver."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from grpo_doctor_probes.gpu.nvml import Device, NoNvml, Nvml
from grpo_doctor_probes.samplers.gpu import GpuSampler
from grpo_doctor_probes.samplers.sampler import Sampling

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.gpu


@pytest.fixture
def nvml() -> Iterator[Nvml]:
    try:
        library = Nvml()
    except NoNvml as error:
        pytest.skip(f"no NVIDIA driver: {error}")
    if not any(isinstance(device, Device) for device in library.gpus()):
        pytest.skip("the NVIDIA driver shows no GPU")
    yield library
    library.call("nvmlShutdown")


@pytest.fixture
def gpus(nvml: Nvml) -> list[Device]:
    return [device for device in nvml.gpus() if isinstance(device, Device)]


def recorded(tmp_path: Path, ticks: int = 25) -> tuple[list[dict[str, Any]], dict[str, float]]:
    sampling = Sampling(tmp_path, "a", os.getpid(), sources=[GpuSampler(os.environ, answer_s=30)])
    sampling.start()
    assert sampling.wait_for_ticks(ticks, timeout_s=120)
    latest = dict(sampling.latest())
    sampling.stop()
    assert sampling.problem is None
    return [json.loads(line) for line in sampling.path.read_text().splitlines()], latest


def test_every_gpu_has_a_row_and_each_field_a_track_or_a_reason(
    tmp_path: Path, gpus: list[Device]
) -> None:
    rows, _ = recorded(tmp_path)
    described = {row["gpu"]: row for row in rows if "memory_total_bytes" in row}
    for gpu in gpus:
        assert gpu.uuid.startswith("GPU-")
        row = described[gpu.uuid]
        missing = {reason.partition(":")[0] for reason in row["missing"]}
        tracks = {
            r["name"].removeprefix("gpu.")
            for r in rows
            if r.get("gpu") == gpu.uuid and "track" in r
        }
        fields = {"util", "memory_used", "power", "sm_clock", "throttle", "pcie_rx", "pcie_tx"}
        assert fields <= tracks | missing
        assert ("gpm" in missing) != ({"sm_active", "tensor_active"} <= tracks)


def test_values_are_in_their_units(tmp_path: Path, gpus: list[Device]) -> None:
    rows, latest = recorded(tmp_path)
    total = min(row["memory_total_bytes"] for row in rows if row.get("memory_total_bytes"))
    limits = {
        "gpu.util": (0, 100),
        "gpu.sm_active": (0, 100),
        "gpu.tensor_active": (0, 100),
        "gpu.power": (1, 3000),
        "gpu.sm_clock": (1, 5000),
        "gpu.memory_used": (0, total),
        "gpu.pcie_rx": (0, 2e11),
    }
    for name, (low, high) in limits.items():
        if name in latest:
            assert low <= latest[name] <= high, name
    assert gpus


def test_ten_hertz_hold(tmp_path: Path, gpus: list[Device]) -> None:
    rows, _ = recorded(tmp_path, ticks=50)
    (end,) = [row for row in rows if "end" in row]
    late = round((end["t"] - rows[0]["t_ns"]) / 1e8) - end["ticks"]
    assert late <= 5 + 10 * len(gpus)  # the first tick tries every field


def test_a_busy_gpu_shows_its_work_and_its_process(tmp_path: Path, gpus: list[Device]) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch is built without CUDA")
    size = 8192
    matrix = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    sampling = Sampling(tmp_path, "a", os.getpid(), sources=[GpuSampler(os.environ, answer_s=30)])
    sampling.start()
    ticks = 0
    while not sampling.wait_for_ticks(30, timeout_s=0) and ticks < 10_000:
        matrix = (matrix @ matrix).clamp_(-1, 1)
        torch.cuda.synchronize()
        ticks += 1
    latest = sampling.latest()
    sampling.stop()
    assert latest["gpu.util"] > 50
    assert latest["gpu.memory_used"] >= size * size * 2
    if "gpu.tensor_active" in latest:
        assert latest["gpu.sm_active"] > 20
        assert latest["gpu.tensor_active"] > 5
