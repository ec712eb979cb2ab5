from __future__ import annotations

from pathlib import Path

from grpo_doctor import knobs
from grpo_doctor.knobs import docs

PAGE = Path(__file__).parents[3] / "docs" / "knobs.md"


def test_the_page_is_up_to_date_names_every_knob_and_says_what_changed() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert docs.updated(text) == text, "run `make docs`"
    assert all(f"**`{knob.name}`**" in text for knob in knobs.KNOBS)
    assert "- TRL: `--vllm_max_model_length 2`; from 0.26.0" in text
    assert "- OpenRLHF: `--adam_offload`; before 0.10.2; default false" in text
    assert "- OpenRLHF: `actor.eps_clip_low_high`, only read; from 0.10.2" in text
