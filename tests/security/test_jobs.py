"""A job is the same bare and recorded; `python -m tests.security.jobs` compares all of them."""

from __future__ import annotations

import pytest

from tests.security.jobs import JOBS, differences

# Each way in which a job was once another one, and one job of each kind.
_HERE = """
process-substitution fifo-as-script job-server terminated signals-blocked
list-of-descriptors half-read-descriptor output-closed every-byte reader-that-leaves
child-that-stays arguments environment limits without-shebang warnings-are-errors own-sitecustomize
state-of-python
""".split()  # noqa: SIM905
pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("name", _HERE)
def test_a_job_is_the_same_bare_and_recorded(name: str) -> None:
    assert JOBS[name]
    assert differences(name) == []
