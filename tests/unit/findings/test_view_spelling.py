"""How a fix is written for the run at hand."""

from __future__ import annotations

from typing import Any

from grpo_doctor.findings.rule import Fix
from grpo_doctor.findings.view import RunView
from grpo_doctor.whatif import Withheld
from tests.unit.findings.example_runs import SETTINGS, run

NOT_REPLAYED = Withheld("it is not replayed")


def view(framework: str, version: str, **settings: Any) -> RunView:
    changed = {name.replace("__", "."): value for name, value in settings.items()}
    knobs = {k: v for k, v in {**SETTINGS, **changed}.items() if v is not None}
    return RunView.of(run(knobs=knobs, framework=framework, framework_version=version).build())


def fix(view: RunView, knob: str, value: Any) -> Fix:
    return view.setting(knob, value, NOT_REPLAYED, safety="same-math", risk="")


def test_a_flag_of_the_runs_version() -> None:
    assert view("openrlhf", "0.11.2").spell("vllm.enforce_eager", True) == "--vllm.enforce_eager"
    assert view("openrlhf", "0.9.0").spell("vllm.enforce_eager", True) == "--enforce_eager"


def test_a_path_in_the_deepspeed_file() -> None:
    run_view = view("trl", "1.16.0", deepspeed__preset="ds.json", deepspeed__offload_optimizer=True)
    advice = fix(run_view, "deepspeed.offload_optimizer", False)
    typed = '"zero_optimization.offload_optimizer.device": "none"'
    assert advice.spelling == f"set {typed} in ds.json"
    assert (advice.typed, advice.where) == (typed, "in ds.json")
    assert (advice.before, advice.after) == (True, False)


def test_a_server_by_default_of_the_version() -> None:
    # TRL before 1.0 rolls out at a server unless told otherwise.
    spelled = {
        version: view("trl", version, vllm__mode=None).spell("vllm.enforce_eager", False)
        for version in ("0.29.0", "1.16.0")
    }
    assert spelled == {"0.29.0": "for `trl vllm-serve`: --enforce_eager false", "1.16.0": None}


def test_words_where_no_version_has_a_flag() -> None:
    advice = fix(view("trl", "1.16.0"), "vllm.max_num_seqs", 64)
    assert advice.spelling == "set vllm.max_num_seqs to 64 (no flag known for trl 1.16.0)"
