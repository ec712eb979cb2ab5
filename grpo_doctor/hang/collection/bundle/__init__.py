"""A bundle: what was seen of a job, in a folder or a `.tar.gz`, to explain again anywhere.

::

    evidence.json.gz    everything that was seen, redacted; what `attach --replay` reads
    verdict.json        the document of `attach --json`
    hang.html           the same as a page
    README.txt          what this is

Any reader of it sees log lines, paths and stacks of the job: the files are the user's alone.
"""

from __future__ import annotations

from grpo_doctor.hang.collection.bundle.files import bundles_in, own_place, read, with_host, write

__all__ = ["bundles_in", "own_place", "read", "with_host", "write"]
