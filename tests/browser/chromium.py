"""A Chromium without a window, driven over two pipes by the protocol of its developer tools.

The browser reads commands from file 3, and writes answers and events to file 4.
Each of them is a JSON text with a zero byte behind it.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import queue
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Longer than anything here takes on a machine that is busy.
PATIENCE = 120
# The pages are our own, and root has no sandbox. The other flags leave out what asks for hosts of Google's.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--remote-debugging-pipe",
)
# What tells a user of the developer tools that something is wrong.
COMPLAINTS = {"error", "warning", "assert"}


def pipe() -> tuple[int, int]:
    """A pipe whose ends are beyond the files that a browser has for it."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]


class Chromium:
    """A browser that runs."""

    def __init__(self, program: str, folder: Path) -> None:
        its_commands, commands = pipe()
        answers, its_answers = pipe()
        move = f'exec "$0" "$@" 3<&{its_commands} {its_commands}<&- 4>&{its_answers} {its_answers}>&-'
        self._log = (folder / "chromium.log").open("wb")
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", move, program, *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
            pass_fds=(its_commands, its_answers),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        os.close(its_commands)
        os.close(its_answers)
        self._commands = os.fdopen(commands, "wb", buffering=0)
        self._answers = os.fdopen(answers, "rb")
        self._numbers = itertools.count(1)
        self._waiting: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._tabs: dict[str, Tab] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        held = b""
        while part := self._answers.read1(1 << 16):
            *messages, held = (held + part).split(b"\0")
            for text in messages:
                message = json.loads(text)
                if "id" in message:
                    self._waiting.pop(message["id"]).put(message)
                elif tab := self._tabs.get(message.get("sessionId", "")):
                    tab.heard(message["method"], message["params"])

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Makes the browser do something; gives what it answers."""
        number, answer = next(self._numbers), queue.Queue[dict[str, Any]]()
        self._waiting[number] = answer
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        self._commands.write(json.dumps(message).encode() + b"\0")
        found = answer.get(timeout=PATIENCE)
        if "error" in found:
            raise RefusedError(f"{method}: {found['error']['message']}")
        result: dict[str, Any] = found["result"]
        return result

    def tab(self) -> Tab:
        """A new tab, which listens to all complaints before it goes anywhere."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self._tabs[session] = Tab(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable", session)
        return tab

    def close(self) -> None:
        """Ends the browser."""
        self.process.terminate()
        try:
            self.process.wait(timeout=PATIENCE)
        finally:
            self.process.kill()
            self._reader.join(timeout=PATIENCE)
            for file in (self._commands, self._answers, self._log):
                file.close()


class RefusedError(Exception):
    """The browser does not do what it was asked for."""


class Tab:
    """A tab of a browser."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session
        # What the developer tools show in red or yellow, and whatever a script would open.
        self.complaints: list[str] = []
        # Addresses that it asked for.
        self.requests: list[str] = []

    def heard(self, method: str, event: dict[str, Any]) -> None:
        """Takes what the browser tells; nothing is called from here, as this is the thread that reads."""
        if method == "Log.entryAdded" and event["entry"]["level"] in COMPLAINTS:
            self.complaints.append(f"{event['entry']['source']}: {event['entry']['text']}")
        elif method == "Runtime.consoleAPICalled" and event["type"] in COMPLAINTS:
            self.complaints.append(f"console: {event['args']}")
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(f"exception: {event['exceptionDetails']['text']}")
        elif method == "Page.javascriptDialogOpening":
            self.complaints.append(f"dialog: {event['message']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])

    def emulate(self, *, scheme: str, width: int) -> None:
        """Shows pages in a window of this width, to somebody who prefers `light` or `dark` ones."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._browser.call("Emulation.setEmulatedMedia", self._session, features=features)
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        self._browser.call("Emulation.setDeviceMetricsOverride", self._session, **size)

    def go(self, url: str) -> None:
        """Goes to an address, and waits until the page is there."""
        answer = self._browser.call("Page.navigate", self._session, url=url)
        assert "errorText" not in answer, answer
        self.until(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def ask(self, expression: str) -> Any:
        """The value of an expression in the page, or of the promise that it is."""
        return self._again(lambda: (self._evaluate(expression),), expression)[0]

    def until(self, expression: str) -> None:
        """Waits until an expression holds, also if the page is another one meanwhile."""
        self._again(lambda: self._evaluate(expression), expression)

    def _evaluate(self, expression: str) -> Any:
        answer = self._browser.call(
            "Runtime.evaluate", self._session, expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RefusedError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def _again(self, ask: Callable[[], Any], expression: str) -> Any:
        """Asks until the answer is true: a page that is just replaced by the next one gives none."""
        deadline = time.monotonic() + PATIENCE
        last = "it does not hold"
        while time.monotonic() < deadline:
            try:
                if found := ask():
                    return found
            except RefusedError as error:
                last = str(error)
            time.sleep(0.05)
        raise AssertionError(f"{expression}: {last}")
