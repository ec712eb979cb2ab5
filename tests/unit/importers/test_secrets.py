"""A secret in what others recorded reaches no output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.cli.output import document_json
from grpo_doctor.cli.rendering import digest, page, text_in
from grpo_doctor.document import build_document
from grpo_doctor.importers.load import load
from tests.unit.importers.trainer_rows import swift_row

CANARY = "Canary7Birdsong9Value"
_STEP = "step:{} - actor/loss:0.1 - critic/score/mean:0.2 - timing_s/step:10.0 - timing_s/gen:5.0\n"
_STEPS = "".join(_STEP.format(number) for number in range(1, 6))
_SWIFT = "".join(json.dumps(swift_row(number, 7.5 * number)) + "\n" for number in range(1, 6))
_TRAIN = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo"


def trace(**run: Any) -> str:
    facts = {"id": "r", "framework": "verl", "world_size": 1, "exit": {"state": "finished"}, **run}
    spans: dict[str, list[Any]] = {"names": [], "args": [], "blocks": []}
    head = {"grpoDoctor": {"format": 1, "run": facts}, "grpoDoctorSpans": spans}
    return json.dumps({**head, "traceEvents": []})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log", f"+ {_TRAIN} trainer.hf_token={CANARY}\n{_STEPS}"),
        ("log", f"+ {_TRAIN} +trainer.wandb_api_key={CANARY}\n{_STEPS}"),
        ("log", f"+ {_TRAIN} model.path=https://u:{CANARY}@host/m\n{_STEPS}"),
        ("logging.jsonl", _SWIFT + json.dumps({"hub_token": CANARY, "loss": 1.0}) + "\n"),
        ("trace.json", trace(command=["swift", "rlhf", "--hub_token", CANARY])),
        ("trace.json", trace(command=["bash", "-c", f"train --hf_token {CANARY}"])),
        ("trace.json", trace(config={"openaiKey": CANARY, "deep": {"webhook_url": CANARY}})),
        ("trace.json", trace(config={"headers": {"Authorization": CANARY}})),
        ("trace.json", trace(notes=[f"Authorization: Token {CANARY}"])),
    ],
)
def test_no_output_has_it(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    document = build_document(load(path))
    outputs = [digest(document, None), text_in("markdown", document), text_in("github", document)]
    outputs += [page(document).decode(), document_json(document).decode()]
    assert [CANARY in output for output in outputs] == [False] * 5


def test_settings_of_ms_swift_beside_its_log(tmp_path: Path) -> None:
    (tmp_path / "logging.jsonl").write_text(_SWIFT)
    arguments = {"rlhf_type": "grpo", "swift_version": "4.6.0", "hub_token": CANARY}
    (tmp_path / "args.json").write_text(json.dumps(arguments))
    run = load(tmp_path / "logging.jsonl").run
    assert CANARY not in json.dumps([run.config, run.knobs, run.command])
