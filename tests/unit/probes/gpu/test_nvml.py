"""What becomes of NVML's answers, with a stand-in for pynvml; and which GPUs a job may see."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor_probes.gpu.nvml import (
    MIN_INTERVAL_NS,
    Device,
    Gpm,
    NoNvml,
    Nvml,
    NvmlError,
    Trouble,
    order_is_uncertain,
    visible_uuids,
)

NOT_SUPPORTED, LOST, TIMEOUT, NOT_FOUND = 3, 15, 10, 12


class NVMLError(Exception):
    def __init__(self, value: int, text: object = "a fault") -> None:
        super().__init__(text)
        self.value = value


class NVMLLibraryMismatchError(Exception):
    pass


class FakePynvml(SimpleNamespace):
    """Functions by name; an error among the answers is raised, a function is called."""

    def __init__(self, **answers: Any) -> None:
        super().__init__(
            NVMLError=NVMLError, NVMLLibraryMismatchError=NVMLLibraryMismatchError,
            NVML_ERROR_NOT_SUPPORTED=NOT_SUPPORTED, NVML_ERROR_GPU_IS_LOST=LOST,
            NVML_ERROR_LIBRARY_NOT_FOUND=NOT_FOUND, nvmlMemory_v2=2,
            NVML_PCIE_UTIL_RX_BYTES=1, NVML_PCIE_UTIL_TX_BYTES=0,
        )  # fmt: skip
        for name, answer in {"nvmlInit": None, "nvmlShutdown": None, **answers}.items():
            self.say(name, answer)

    def say(self, name: str, answer: Any) -> None:
        def called(*arguments: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer(*arguments) if callable(answer) else answer

        setattr(self, name, called)


def nvml(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> tuple[Nvml, FakePynvml]:
    library = FakePynvml(**answers)
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return Nvml(), library


TWO_GPUS = {
    "nvmlDeviceGetCount": 2,
    "nvmlDeviceGetHandleByIndex": lambda index: f"g{index}",
    "nvmlDeviceGetMigMode": lambda handle: (int(handle == "g0"), 1),
    "nvmlDeviceGetUUID": lambda handle: f"UUID-{handle}",
    "nvmlDeviceGetName": "A100",
}


def test_without_the_library_there_is_no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoNvml, match=r"^libnvidia-ml.so.1 not found$"):
        nvml(monkeypatch, nvmlInit=NVMLError(NOT_FOUND))
    with pytest.raises(NoNvml, match=r"^nvmlInit: Driver Not Loaded$"):
        nvml(monkeypatch, nvmlInit=NVMLError(9, "Driver Not Loaded"))
    with pytest.raises(NoNvml, match=r"^nvmlInit: code 999$"):
        nvml(monkeypatch, nvmlInit=NVMLError(999, b"code 999"))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NoNvml, match="cannot be imported"):
        Nvml()


@pytest.mark.parametrize(
    ("answer", "trouble", "text"),
    [
        (NVMLError(NOT_SUPPORTED, "Not Supported"), Trouble.UNSUPPORTED, "Not Supported"),
        (NVMLError(LOST, "GPU is lost"), Trouble.LOST, "GPU is lost"),
        (NVMLError(TIMEOUT, "Timeout"), Trouble.TRANSIENT, "Timeout"),
        (NVMLLibraryMismatchError(), Trouble.UNSUPPORTED, "this driver is too old for it"),
    ],
)
def test_what_an_error_means(
    monkeypatch: pytest.MonkeyPatch, answer: Exception, trouble: Trouble, text: str
) -> None:
    wrapper, _ = nvml(monkeypatch, nvmlDeviceGetCount=answer)
    with pytest.raises(NvmlError, match=f"^{text}$") as raised:
        wrapper.call("nvmlDeviceGetCount")
    assert raised.value.trouble is trouble


def test_gpus_and_whether_they_are_partitioned(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper, library = nvml(monkeypatch, **TWO_GPUS)
    first, second = wrapper.gpus()
    assert first == Device("g0", "UUID-g0", 0, "A100", mig_on=True)
    assert second == Device("g1", "UUID-g1", 1, "A100", mig_on=False)
    library.say("nvmlDeviceGetMigMode", NVMLError(NOT_SUPPORTED))
    assert wrapper.gpu(0) == Device("g0", "UUID-g0", 0, "A100", mig_on=False)
    library.say("nvmlDeviceGetMigMode", NVMLError(LOST, "GPU is lost"))
    assert list(wrapper.gpus()) == [
        f"GPU {index} cannot be opened (gpu is lost): it is not sampled" for index in range(2)
    ]


GPU = Device("g0", "UUID-g0", 0, "A100")


def test_throttling_by_the_older_name_of_an_older_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "nvmlDeviceGetCurrentClocksEventReasons"
    wrapper, library = nvml(monkeypatch, **{name: 4})
    assert wrapper.throttle_bits(GPU) == 4
    library.say(name, NVMLError(NOT_SUPPORTED))
    library.say("nvmlDeviceGetCurrentClocksThrottleReasons", 8)
    assert wrapper.throttle_bits(GPU) == 8
    for code, trouble in ((TIMEOUT, Trouble.TRANSIENT), (LOST, Trouble.LOST)):
        library.say(name, NVMLError(code))
        with pytest.raises(NvmlError) as raised:
            wrapper.throttle_bits(GPU)
        assert raised.value.trouble is trouble


class TwoMetrics(Nvml):
    """Counts samples and answers with two metrics, the second of which failed."""

    def __init__(self, *, supported: bool = True, refuses: str = "") -> None:
        self.supported, self.refuses = supported, refuses
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.lib: Any = SimpleNamespace(
            NVML_GPM_METRIC_SM_UTIL=2, NVML_GPM_METRIC_ANY_TENSOR_UTIL=5,
            NVML_GPM_METRICS_GET_VERSION=1,
            c_nvmlGpmMetricsGet_t=lambda: SimpleNamespace(
                metrics=[SimpleNamespace(value=30 + n, nvmlReturn=n) for n in range(2)]
            ),
        )  # fmt: skip

    def call(self, function: str, *arguments: Any) -> Any:
        self.calls.append((function, arguments))
        if function == self.refuses:
            raise NvmlError(Trouble.UNSUPPORTED, "refused")
        if function == "nvmlGpmQueryDeviceSupport":
            return SimpleNamespace(isSupportedDevice=self.supported)
        return len(self.calls)

    def calls_of(self, function: str) -> list[tuple[Any, ...]]:
        return [arguments[:2] for name, arguments in self.calls if name == function]


def test_shares_of_cores_come_from_pairs_110_ms_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    library = TwoMetrics()
    pair = Gpm(library, GPU)
    now = [5_000_000_000]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    assert pair.read() == {}
    now[0] += MIN_INTERVAL_NS - 1
    assert pair.read() == {}
    assert not library.calls_of("nvmlGpmMetricsGet")
    now[0] += 1
    assert pair.read() == {"sm_active": 30.0, "tensor_active": None}
    assert [metric.metricId for metric in pair._request.metrics] == [2, 5]
    pair.close()
    pair.close()
    assert len(library.calls_of("nvmlGpmSampleFree")) == 2


GPUS = [
    Device(None, "GPU-aaaa1111-0", 0, "H100"),
    Device(None, "GPU-aaaa2222-1", 1, "H100", mig_on=True),
    Device(None, "GPU-cccc3333-4", 2, "H100"),
]
ALL = {"0", "1", "4"}


def visible(value: str | None) -> set[str]:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    return {uuid.rpartition("-")[2] for uuid in visible_uuids(environ, GPUS)}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ALL),
        ("", set()),
        ("-1", set()),
        ("NoDevFiles", set()),
        ("0", {"0"}),
        (" 2 , 0 ", {"0", "4"}),
        ("0,2,-1,1", {"0", "4"}),
        ("0,9,2", {"0"}),
        ("1", {"1"}),
        ("GPU-aaaa1111-0", {"0"}),
        ("GPU-c", {"4"}),
        ("GPU-aaaa,2", set()),
        ("GPU-dddd,2", set()),
        ("MIG-bbbb1111-2", ALL),  # of which GPU is not known
        ("0,MIG-GPU-aaaa2222-1/8/0", ALL),
    ],
)
def test_what_a_job_may_use(value: str | None, expected: set[str]) -> None:
    assert visible(value) == expected


def test_indices_are_uncertain_only_where_gpus_differ_and_no_order_is_given() -> None:
    mixed = [*GPUS, Device(None, "GPU-5", 3, "A100")]
    assert order_is_uncertain({"CUDA_VISIBLE_DEVICES": "0,1"}, mixed)
    assert not order_is_uncertain({"CUDA_VISIBLE_DEVICES": "0,1"}, GPUS)
    assert not order_is_uncertain({"CUDA_VISIBLE_DEVICES": "GPU-5"}, mixed)
    assert not order_is_uncertain({}, mixed)
    fixed = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert not order_is_uncertain(fixed, mixed)
