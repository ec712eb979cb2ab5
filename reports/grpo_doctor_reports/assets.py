"""The page's own style and script, its templates, and plotly.js out of the installed package."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from grpo_doctor_reports.charts.figure import pack_text
from grpo_doctor_reports.errors import AssetError
from grpo_doctor_reports.palette import PHASE_COLORS, ink_on

_SCRIPTS: Final = ("page.js", "data.js", "axis.js", "figures.js", "reading.js", "boot.js")
# Runs before anything is drawn, so that what only a script brings has its room from the start.
_FIRST_SCRIPT: Final = 'document.documentElement.classList.add("scripted");\n'
STILL_SCRIPTS: Final = ("page.js", "still.js")  # of pages without charts


@dataclass(frozen=True, slots=True)
class PlotlySource:
    """plotly.js as the page carries it: gzipped base64, and the hash its inserted script has."""

    packed: str
    csp_hash: str


@cache
def style(*own: str) -> str:
    """Return the page's style sheet, with one class per phase that sets its color and its ink, and
    the files of a page of another kind."""
    classes = "".join(
        f".phase-{phase}{{--c:{color};--on-c:{ink_on(phase)}}}\n"
        for phase, color in PHASE_COLORS.items()
    )
    files = ("report.css", "explore.css", "narrow.css", *own)
    return classes + "\n".join(_read(name) for name in files)


@cache
def hang_style() -> str:
    """Return the style sheet of the page about a stuck job: the report's, and its own."""
    return "\n".join(_read(name) for name in ("report.css", "hang.css", "narrow.css"))


@cache
def script(*names: str) -> str:
    """Return a page's script, that of a report without names: files in one strict scope."""
    body = "\n".join(_read(name) for name in names or _SCRIPTS)
    return f'(() => {{\n"use strict";\n{body}\n}})();'


@cache
def plotly_source() -> PlotlySource:
    """Return plotly.js of the installed package, packed once per process (about half a second).

    Raises:
        AssetError: plotly is not installed, or came without its plotly.min.js.
    """
    try:
        from plotly.offline import get_plotlyjs  # noqa: PLC0415 (50 ms that text output never pays)

        source = str(get_plotlyjs())
    except (ImportError, OSError) as error:
        raise AssetError(
            "The HTML report needs the plotly package with its plotly.min.js. "
            f"Install it with `pip install plotly`. ({error})"
        ) from error
    return PlotlySource(packed=pack_text(source), csp_hash=csp_hash(source))


def csp_hash(source: str) -> str:
    """Return the content-security-policy source expression of an inline script."""
    digest = hashlib.sha256(source.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def policy(*scripts: str) -> str:
    """Return the content-security-policy of a page: it runs these, by hash, and `first_script`."""
    allowed = " ".join([csp_hash(_FIRST_SCRIPT), *scripts])
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _read(name: str) -> str:
    file = resources.files("grpo_doctor_reports").joinpath("assets", name)
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise AssetError(
            f"The report's asset {name} is not installed; install grpo-doctor again. ({error})"
        ) from error


_QUOTED: Final = re.compile(r"`([^`]+)`")


def code(text: str) -> Markup:
    """Return text, escaped, with what stands between backticks as code."""
    parts = _QUOTED.split(text)
    shown = (Markup("<code>{}</code>").format(part) if at % 2 else Markup.escape(part)
             for at, part in enumerate(parts))  # fmt: skip
    return Markup("").join(shown)


def own_page(
    environment: Environment,
    template: str,
    style: str,
    scripts: tuple[str, ...] = STILL_SCRIPTS,
    allowed: str = "",
    **context: object,
) -> bytes:
    """Return a page without charts as UTF-8; `allowed` is what its policy allows in addition."""
    own = script(*scripts)
    page = environment.get_template(template).render(
        script=Markup(own),  # noqa: S704 (our own file; its hash is in the policy)
        style=Markup(style),  # noqa: S704 (our own file)
        policy=policy(csp_hash(own)) + allowed,
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
    environment.globals["first_script"] = Markup(_FIRST_SCRIPT)  # noqa: S704 (our own file)
    return environment
