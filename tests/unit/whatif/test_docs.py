from __future__ import annotations

from pathlib import Path

from grpo_doctor.whatif.docs import PAGE, page
from grpo_doctor.whatif.models import MODELS

ROOT = Path(__file__).parents[3]


def test_every_model_and_setting_is_on_the_page() -> None:
    text = page()
    assert all(f"`{knob}`" in text for cost_model in MODELS for knob in cost_model.knobs)


def test_the_page_in_docs_is_the_one_that_the_models_make() -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page(), (
        "run: python -m grpo_doctor.whatif.docs"
    )
