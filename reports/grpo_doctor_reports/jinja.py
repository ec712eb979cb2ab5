"""The templates of both pages, under one set of rules for untrusted text."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined


def template_environment() -> Environment:
    """Return an environment that escapes everything and refuses names that are not there."""
    return Environment(
        loader=PackageLoader("grpo_doctor_reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
