"""A minimal client of the Chrome DevTools protocol over a pipe: the standard library is enough."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    # Pages of its own could come to the front, and a page behind them draws no frame.
    "--no-startup-window",
    "--disable-renderer-backgrounding",
    "--disable-backgrounding-occluded-windows",
    "--disable-background-timer-throttling",
    "--remote-debugging-pipe",
)
# Chromium reads commands from descriptor 3 and answers on descriptor 4.
_WITH_PIPES: Final = (
    'commands=$1; answers=$2; shift 2; eval "exec \\"\\$@\\" 3<&$commands 4>&$answers"'
)
_PATIENCE_S: Final = 180.0  # a busy machine draws a crowded page for more than a minute
_FRAME: Final = """new Promise((next) => {
  requestAnimationFrame(() => setTimeout(next, 0, true));
  setTimeout(next, 10000, false);
})"""
_FRAME_TRIES: Final = 6
_FRAME_EVERY_S: Final = 10.0


class FrozenError(TimeoutError):
    """The browser itself has stopped: no page of it draws a frame, it answers nothing, or is gone.

    Chromium's process that draws can hang for good, once in some hundred runs on a shared machine;
    the page then looks well to scripts (`document.visibilityState` is "visible"). It says nothing
    about the page, so conftest.py runs the test again, in another browser.
    """


def find_chromium() -> str | None:
    """Return the path of a Chromium or Chrome, None where there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class Tab:
    """One page: commands out, events in. Every event since it was opened is in `events`.

    `whole` is the page of which every chart is drawn and nothing was clicked, if that is so.
    """

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = answers
        self._buffer = b""
        self._last_id = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        self.frozen = False
        self.whole: Path | None = None
        self.patience_s = _PATIENCE_S

    def attach(self) -> None:
        """Open a blank page and listen to what it does."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result; RuntimeError with the browser's words otherwise."""
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self.patience_s
        while True:
            answer = self._read(deadline)
            if answer.get("id") != self._last_id:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return dict(answer["result"])

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; a promise is awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:2_000])
        return answer["result"].get("value")

    def open(
        self, path: Path, width: int, height: int = 900, *, scripts: bool = True, target: str = ""
    ) -> None:
        """Show a file, or the element `target` in it, at a window size; wait until it loaded."""
        self.whole = None
        self.resize(width, height)
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.events.clear()
        # The query makes it another document: another fragment alone loads nothing.
        self.call("Page.navigate", url=path.as_uri() + (f"?{target}#{target}" if target else ""))
        deadline = time.monotonic() + self.patience_s
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read(deadline))

    def resize(self, width: int, height: int) -> None:
        """Set the size of the window in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    def dark(self, dark: bool) -> None:
        """Set what the system says about its colour scheme."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def wait_for(self, done: Callable[[], object]) -> None:
        """Ask the browser again and again until `done`; TimeoutError after three minutes.

        Charts wait for frames. Each ten seconds one is asked for: without any it is not the page's
        fault, and a browser that has missed one goes on.
        """
        deadline = time.monotonic() + self.patience_s
        frame_due = time.monotonic() + _FRAME_EVERY_S
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError("the page did not get there")
            if time.monotonic() > frame_due:
                self.frame()
                frame_due = time.monotonic() + _FRAME_EVERY_S
            self.evaluate("new Promise((next) => setTimeout(next, 50))")

    def frame(self, tries: int = _FRAME_TRIES) -> None:
        """Wait until the page has drawn a frame; FrozenError after `tries` times 10 s."""
        for _ in range(tries):
            if self.evaluate(_FRAME):
                return
            self.call("Page.bringToFront")
        state = self.evaluate("document.visibilityState")
        raise self._freeze(f"the browser draws no frame; the page is {state}")

    def screenshot(self, path: Path) -> None:
        """Write what the window shows as a PNG."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def problems(self) -> list[str]:
        """Return console errors, uncaught exceptions and policy violations so far."""
        return [json.dumps(event["params"])[:600] for event in self.events if _is_problem(event)]

    def requests(self) -> list[str]:
        """Return the address of everything the page asked for so far."""
        return [
            str(event["params"]["request"]["url"])
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise self._freeze("the browser does not answer")
            chunk = os.read(self._answers, 1 << 20)
            if not chunk:
                raise self._freeze("the browser has gone")
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def _freeze(self, why: str) -> FrozenError:
        self.frozen = True
        return FrozenError(why)


def _is_problem(event: dict[str, Any]) -> bool:
    method, params = event.get("method"), event.get("params", {})
    if method == "Runtime.exceptionThrown":
        return True
    if method == "Runtime.consoleAPICalled":
        return params["type"] in {"error", "warning", "assert"}
    return method == "Log.entryAdded" and params["entry"]["level"] in {"error", "warning"}


@contextmanager
def browser(chromium: str) -> Iterator[Tab]:
    """Start a browser with an empty profile, give its tab, end it."""
    command_read, command_write = os.pipe()
    answer_read, answer_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            ["/bin/bash", "-c", _WITH_PIPES, "bash", str(command_read), str(answer_write),
             chromium, *_FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(command_read, answer_write),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        os.close(command_read)
        os.close(answer_write)
        try:
            tab = Tab(command_write, answer_read)
            tab.attach()
            yield tab
        finally:
            os.close(command_write)  # chromium leaves when its command pipe closes
            os.close(answer_read)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            with suppress(ProcessLookupError):  # a process of it that hangs outlives the browser
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Browsers:
    """Browsers one after the other: the same one again, or a new one where the last one froze."""

    def __init__(self, chromium: str) -> None:
        self._chromium = chromium
        self._running = ExitStack()
        self._tab: Tab | None = None

    def tab(self) -> Tab:
        """Return the tab of a browser that works, as far as is known."""
        if self._tab is None or self._tab.frozen:
            self.close()
            self._tab = self._running.enter_context(browser(self._chromium))
        return self._tab

    def close(self) -> None:
        """End the browser."""
        self._running.close()
        self._tab = None
