"""Says elsewhere what changed: the job is stuck, has a severe finding, or has ended."""

from __future__ import annotations

import json
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable

from grpo_doctor_reports.schema.watch import FindingNow, Snapshot

_PATIENCE_S = 20.0


class Alerts:
    """Calls each target once for each verdict, each severe finding, and the end of the run.

    A target that begins with http:// or https:// gets a POST with JSON whose `text` Slack and
    Mattermost show; any other is a shell command that gets the same JSON on standard input.
    """

    def __init__(self, targets: list[str], say: Callable[[str], None]) -> None:
        self._targets, self._say = targets, say
        self._known: tuple[int, Snapshot] | None = None
        self._found: set[str] | None = None

    def hear(self, now: Snapshot) -> None:
        """Compare with the last snapshot; what was true before the first one is no news."""
        latest = max((verdict.taken_unix_ns for verdict in now.verdicts), default=0)
        before, self._known = self._known, (latest, now)
        if before is None:
            return
        if latest > before[0]:
            verdict = now.verdicts[-1]
            self._send(now, verdict.state, verdict.headline)
        for finding in self._new(now):
            self._send(now, "finding", f"{finding.title} ({finding.id})")
        if before[1].continues and not now.continues:
            code = f" (exit code {now.exit_code})" if now.exit_code else ""
            self._send(now, now.state, f"the run {_ENDED.get(now.state, 'ended')}{code}")

    def _new(self, now: Snapshot) -> list[FindingNow]:
        """Severe findings that no report before had; those of the first report are no news."""
        severe = [finding for finding in now.findings or () if finding.severity == "high"]
        known = {finding.id for finding in severe} if self._found is None else self._found
        if now.findings is not None:
            self._found = known | {finding.id for finding in severe}
        return [finding for finding in severe if finding.id not in known]

    def _send(self, now: Snapshot, state: str, headline: str) -> None:
        message = {"text": f"{now.run}: {headline}", "state": state, "run": now.run}
        for target in self._targets:
            threading.Thread(target=self._call, args=(target, message), daemon=True).start()

    def _call(self, target: str, message: dict[str, str]) -> None:
        body = json.dumps(message).encode()
        try:
            if target.startswith(("http://", "https://")):
                request = urllib.request.Request(  # noqa: S310 - http and https alone
                    target, body, {"Content-Type": "application/json"}
                )
                with urllib.request.urlopen(request, timeout=_PATIENCE_S):  # noqa: S310
                    return
            done = subprocess.run(  # noqa: S602 - the user's own command
                target, shell=True, input=body, timeout=_PATIENCE_S, check=False
            )
            if done.returncode:
                self._say(f"--alert: the command ended with exit code {done.returncode}")
        except (OSError, ValueError, subprocess.TimeoutExpired, urllib.error.URLError) as problem:
            self._say(f"--alert: {problem}")


_ENDED = {
    "finished": "finished", "failed": "failed", "killed": "was killed", "hung": "was stuck",
    "interrupted": "was interrupted", "gone": "directory is gone",
}  # fmt: skip
