"""The templates of both pages, under one set of rules for untrusted text."""

from __future__ import annotations

import re
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from grpo_doctor_reports import assets

_QUOTED: Final = re.compile(r"`([^`]+)`")


def code(text: str) -> Markup:
    """Return text, escaped, with what stands between backticks as code."""
    parts = _QUOTED.split(text)
    shown = (Markup("<code>{}</code>").format(part) if at % 2 else Markup.escape(part)
             for at, part in enumerate(parts))  # fmt: skip
    return Markup("").join(shown)


def still_page(environment: Environment, template: str, style: str, **context: object) -> bytes:
    """Return a page without charts as UTF-8."""
    script = assets.still_script()
    page = environment.get_template(template).render(
        script=Markup(script),  # noqa: S704 (our own file; its hash is in the policy)
        style=Markup(style),  # noqa: S704 (our own file)
        policy=assets.policy(assets.csp_hash(script)),
        **context,
    )
    return page.encode("utf-8")


def template_environment() -> Environment:
    """Return an environment that escapes everything and refuses names that are not there."""
    environment = Environment(
        loader=PackageLoader("grpo_doctor_reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = code
    environment.globals["first_script"] = Markup(assets.first_script())  # noqa: S704 (our own file)
    return environment
