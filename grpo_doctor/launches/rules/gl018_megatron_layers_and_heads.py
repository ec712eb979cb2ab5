"""Layers or heads do not divide.

Each pipeline stage takes the same number of layers, unless the first and last are given their
own; each tensor rank takes the same number of attention heads.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import MEGATRON, Flaw, View, divisors, fatal_flaw

DOMAIN = MEGATRON
_UNEVEN = ("pipeline_num_layers", "layout", "pipeline_stage", "in_pipeline_split")
"""In options that give stages their own number of layers, or count the tables as layers."""


def check(view: View) -> Flaw | None:
    """Layers over stages, heads over tensor ranks."""
    model = view.model
    if model is None:
        return None
    tensor, pipeline = view.degree("parallel.tensor"), view.degree("parallel.pipeline")
    if model.heads % tensor:
        return fatal_flaw(
            headline=f"{model.heads} attention heads are not divisible by {tensor} tensor ranks",
            evidence=(f"the model has {model.heads} attention heads",),
            fixes=(view.flags("parallel.tensor", divisors(model.heads, 8)),),
            source=view.source("parallel.tensor"),
        )
    uneven = any(word in key for key in view.launch.options for word in _UNEVEN)
    if model.layers % pipeline == 0 or uneven:
        return None
    return fatal_flaw(
        headline=f"{model.layers} layers are not divisible by {pipeline} stages",
        evidence=(f"the model has {model.layers} layers",),
        fixes=(
            view.flags("parallel.pipeline", divisors(model.layers, 8)),
            "or give the first and last stage their own number of layers",
        ),
        source=view.source("parallel.pipeline"),
    )
