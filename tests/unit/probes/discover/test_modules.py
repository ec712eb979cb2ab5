from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor_probes.discover.commands import framework_by_script
from grpo_doctor_probes.discover.modules import modules_of, python_version, torch_version
from grpo_doctor_probes.discover.scan import Process
from grpo_doctor_probes.memory.access import parse_maps

TORCH = "/opt/v/lib/python3.12/site-packages/torch"
MAPS = f"""\
200000000-300000000 rw-s 00000000 00:05 9 /dev/nvidia-uvm
55d000000000-55d000001000 r--p 00000000 08:01 11 /opt/v/bin/python (deleted)
7f0000000000-7f0000100000 r-xp 00100000 08:01 12 {TORCH}/lib/libtorch_cpu.so
7f0000100000-7f0000200000 r--p 00000000 08:01 12 {TORCH}/lib/libtorch_cpu.so
7f0000300000-7f0000400000 rw-p 00000000 00:00 0 [heap]
not a line /torch/lib/libtorch.so
"""


def test_torch_and_its_version_as_the_process_sees_them(tmp_path: Path) -> None:
    modules = modules_of(parse_maps(MAPS))
    assert modules.torch_folder == TORCH
    assert {file.path: file.start for file in modules.files}["/opt/v/bin/python"] == 0x55D000000000
    folder = tmp_path / "7" / "root" / TORCH.lstrip("/")
    folder.mkdir(parents=True)
    (folder / "version.py").write_text("debug = False\n__version__: str = '2.9.1+cu128'\n")
    assert torch_version(tmp_path, 7, modules) == "2.9.1+cu128"
    assert torch_version(tmp_path, 8, modules) == ""
    assert python_version("/opt/v/bin/python", modules) == "3.12"
    assert not modules_of(parse_maps("")).has_torch


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        ("import torch\nfrom trl import GRPOTrainer\n", "trl"),
        ("import verl.trainer\nimport trl\n", "verl"),
        ("    from swift.llm import x\n", "ms-swift"),
        ("# import trl\nimport trlx\n", "unknown"),
    ],
)
def test_a_script_tells_the_framework_by_its_imports(
    tmp_path: Path, text: str, framework: str
) -> None:
    (tmp_path / "7" / "cwd").mkdir(parents=True)
    (tmp_path / "7" / "cwd" / "t.py").write_text(text)
    process = Process(
        pid=7, parent=1, group=7, session=7, state="S", name="python", started_ticks=1,
        arguments=("python", "-u", "t.py"),
    )  # fmt: skip
    assert framework_by_script(tmp_path, process) == framework
