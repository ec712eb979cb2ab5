"""The newest wheel of each framework; `python -m tests.wheels` has the ones at every border."""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import io
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor import knobs
from grpo_doctor.knobs.tables import BY_NAME
from tests.unit.knobs.values_of import printed
from tests.wheels.compare import mismatches
from tests.wheels.definitions import Option, fields_in, options_of, sources
from tests.wheels.fetch import VERSIONS, NoWheelError, wheel


def newest(framework: str) -> tuple[str, Path]:
    version = VERSIONS[framework][-1]
    try:
        return version, wheel(framework, version)
    except NoWheelError as problem:
        pytest.skip(str(problem))


@pytest.mark.parametrize("framework", sorted(VERSIONS))
def test_the_newest_wheel_has_every_name_and_default(framework: str) -> None:
    version, path = newest(framework)
    options = options_of(framework, path)
    assert len(options) > 100  # else the reader went wrong, not the table
    assert list(mismatches(framework, version, options)) == []


def test_a_wrong_name_or_default_or_choice_is_found() -> None:
    _, path = newest("openrlhf")
    right = options_of("openrlhf", path)
    lacking = {name: option for name, option in right.items() if name != "ds.zero_stage"}
    other_default = Option("ds.zero_stage", 3, takes="int")
    narrow = Option("actor.policy_loss_type", "ppo", takes="str", choices=("ppo",))
    valued = Option("ds.adam_offload", False, takes="str")
    for options, text in (
        (lacking, "ds.zero_stage does not exist"),
        ({**right, "ds.zero_stage": other_default}, "ds.zero_stage defaults to 3, not 2"),
        ({**right, "actor.policy_loss_type": narrow}, "takes ('ppo',), not 'gspo'"),
        ({**right, "ds.adam_offload": valued}, "ds.adam_offload is no switch"),
        ({**right, "adam_offload": valued}, "adam_offload exists outside its versions"),
    ):
        assert any(text in line for line in mismatches("openrlhf", "0.11.2", options)), text


def test_openrlhf_parser_takes_every_printed_setting() -> None:
    version, path = newest("openrlhf")
    parser = parser_in(sources(path)["openrlhf/cli/train_ppo_ray.py"])
    for knob, value, words in printed("openrlhf", version):
        answers = vars(parser.parse_args(words))
        assert knobs.canonical("openrlhf", version, answers)[knob] == value, words


def parser_in(source: str) -> argparse.ArgumentParser:
    """The parser that a script makes, from the statements before it parses."""
    tree = ast.parse(source)
    main = next(node for node in tree.body if isinstance(node, ast.If))
    end = next(i for i, node in enumerate(main.body) if "parse_args" in ast.unparse(node))
    made = ast.Module([n for n in tree.body if _of_the_library(n)] + main.body[:end], [])
    names: dict[str, Any] = {}
    exec(compile(made, "train_ppo_ray", "exec"), names)
    parser = names["parser"]
    assert isinstance(parser, argparse.ArgumentParser)
    return parser


def _of_the_library(node: ast.stmt) -> bool:
    """Imports that need nothing installed: `import argparse`, `from datetime import datetime`."""
    if isinstance(node, ast.Import):
        return all(name.name in sys.stdlib_module_names for name in node.names)
    return isinstance(node, ast.ImportFrom) and node.module in sys.stdlib_module_names


@pytest.mark.slow  # imports transformers
def test_trl_parser_takes_every_printed_setting() -> None:
    pytest.importorskip("trl", reason="needs TRL, which wants Python 3.11")
    from importlib.metadata import version as installed

    from transformers import HfArgumentParser
    from trl import GRPOConfig, ModelConfig

    version = installed("trl")
    parser = HfArgumentParser([GRPOConfig, ModelConfig])
    for knob, value, words in printed("trl", version):
        with contextlib.redirect_stderr(io.StringIO()) as message:
            try:
                answers = vars(parser.parse_args(["--output_dir", "x", *words]))
            except SystemExit:
                pytest.fail(f"{words}: {message.getvalue()}")
        assert knobs.canonical("trl", version, answers)[knob] == value, words


def test_bundled_parser_takes_every_printed_setting() -> None:
    from grpo_doctor_trainer.flags import build_parser

    for knob, value, words in printed("bundled", "0.1.0"):
        answers = build_parser().given(words)
        assert knobs.canonical("bundled", "0.1.0", answers)[knob] == value, words


def test_vllm_has_every_engine_argument() -> None:
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        pytest.skip("needs vLLM; `make test-vllm` installs its CPU build")
    source = (Path(spec.origin).parent / "engine" / "arg_utils.py").read_text(encoding="utf-8")
    fields = fields_in(source, "EngineArgs")
    assert {row.key for row in knobs.TABLES["vllm"]} <= set(fields)


@pytest.mark.vllm
def test_vllm_parser_takes_every_printed_setting() -> None:
    pytest.importorskip("vllm", reason="needs vLLM; `make test-vllm` installs its CPU build")
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    for knob, value, words in printed("vllm", None):
        answers = vars(parser.parse_args(words))
        assert knobs.canonical("vllm", None, answers)[knob] == value, words


@pytest.mark.slow
def test_deepspeed_takes_every_path() -> None:
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    for row in knobs.TABLES["deepspeed"]:
        kind = BY_NAME[row.knob].kind
        value: Any = {"bool": True, "int": 2}[kind] if not row.values else "cpu"
        node: Any = value
        for level in reversed(row.key.split(".")[1:]):
            node = {level: node}
        DeepSpeedZeroConfig(**node)
    with pytest.raises(ValueError, match="offload_somewhere"):
        DeepSpeedZeroConfig(offload_somewhere=True)
