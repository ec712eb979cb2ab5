"""What a process has loaded is read from the files that it has mapped."""

from __future__ import annotations

from pathlib import Path

from grpo_doctor_probes.samplers.libraries import loaded

_LINE = "7f00-7f01 r-xp 00000000 08:01 42  /usr/lib/python3/site-packages/{}\n"


def test_known_libraries_are_named(tmp_path: Path) -> None:
    files = ("torch/lib/libtorch_cpu.so", "vllm/_C.abi3.so", "mine/torch_like.so")
    (tmp_path / "maps").write_text("".join(_LINE.format(name) for name in files))
    assert loaded(tmp_path) == {"torch", "vLLM"}


def test_a_process_that_has_gone_has_none(tmp_path: Path) -> None:
    assert loaded(tmp_path / "gone") == set()
