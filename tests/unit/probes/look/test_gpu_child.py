"""What the process that asks NVML says of each GPU, and what it leaves out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from grpo_doctor_probes.look import gpu_child
from grpo_doctor_probes.samplers.nvml import Device, Nvml, NvmlError, Trouble

REFUSED = NvmlError(Trouble.UNSUPPORTED, "not supported")
LOST = NvmlError(Trouble.LOST, "GPU is lost")
Ask = Callable[..., list[dict[str, Any]]]


def fields(*values: int | None) -> list[SimpleNamespace]:
    """As NVML answers several at once: each with a return code of its own."""
    return [
        SimpleNamespace(
            nvmlReturn=3 if v is None else 0, value=SimpleNamespace(ullVal=99 if v is None else v)
        )
        for v in values
    ]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """The lines of a child on a host whose driver answers so; the rest it refuses."""

    def lines(gpus: int, *arguments: str, lost: int | None = None, **answers: Any) -> list[Any]:
        class Driver(Nvml):
            def __init__(self) -> None:
                self.lib: Any = MagicMock()  # its constants
                self._memory_v2 = True

            def call(self, function: str, *_: Any) -> Any:
                answers_by_call = {"nvmlDeviceGetCount": gpus, **answers}
                if function not in answers_by_call:
                    raise REFUSED
                answer = answers_by_call[function]
                return answer() if callable(answer) else answer

            def gpu(self, index: int) -> Device:
                if index == lost:
                    raise LOST
                return Device(None, f"GPU-{index}", index, "H100")

        monkeypatch.setattr(gpu_child, "Nvml", Driver)
        monkeypatch.setattr(os, "_exit", lambda _: None)
        gpu_child.main(arguments)
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return lines


@pytest.mark.parametrize(
    ("values", "errors", "bytes_moved"),
    [
        ((1, 2, 3, 4, 10, 20), 10, 30 * 1024),
        ((1, None, 3, None, None, 20), 4, 20 * 1024),
        ((0, 0, 0, 0, None, None), 0, None),
        ((None, None, None, None, 5, 0), None, 5 * 1024),
    ],
)
def test_what_a_link_does_not_count_is_left_out_of_its_sums(
    ask: Ask, values: tuple[int | None, ...], errors: int | None, bytes_moved: int | None
) -> None:
    lines = ask(1, nvmlDeviceGetFieldValues=fields(*values))
    (gpu,) = [line["gpu"] for line in lines if "gpu" in line]
    assert (gpu["nvlink_errors"], gpu["nvlink_bytes"]) == (errors, bytes_moved)


def test_what_goes_over_pcie_is_the_sum_of_both_ways(ask: Ask) -> None:
    kilobytes = iter((3, 5))
    lines = ask(1, nvmlDeviceGetPcieThroughput=lambda: next(kilobytes))
    (gpu,) = [line["gpu"] for line in lines if "gpu" in line]
    assert gpu["pcie_bytes_per_s"] == 8000


def test_a_driver_that_refuses_everything_leaves_names(ask: Ask) -> None:
    lines = ask(1)
    (gpu,) = [line["gpu"] for line in lines if "gpu" in line]
    filled_in = {name for name, value in gpu.items() if value not in (None, "", [], 0)}
    assert filled_in == {"at_ns", "uuid", "name"}
    assert lines[-1] == {"end": True}


def test_a_lost_gpu_is_said_and_the_next_is_asked(ask: Ask) -> None:
    lines = ask(2, lost=0, nvmlDeviceGetEnforcedPowerLimit=700_000)
    assert {"lost": 0, "why": "gpu is lost"} in lines
    (gpu,) = [line["gpu"] for line in lines if "gpu" in line]
    assert (gpu["index"], gpu["power_limit_w"]) == (1, 700)


def test_gpus_are_counted_and_no_more(ask: Ask) -> None:
    assert [line for line in ask(4, "count") if "asks" not in line] == [{"count": 4}, {"end": True}]
