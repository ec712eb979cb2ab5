"""The templates of both pages, under one set of rules for untrusted text."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from grpo_doctor_reports import assets


def template_environment() -> Environment:
    """Return an environment that escapes everything and refuses names that are not there."""
    environment = Environment(
        loader=PackageLoader("grpo_doctor_reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["first_script"] = Markup(assets.first_script())  # noqa: S704 (our own file)
    return environment
