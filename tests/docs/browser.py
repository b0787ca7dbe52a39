"""A headless Chromium, driven over the pipe of its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.patience import PATIENCE

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def program() -> str | None:
    """The path of an installed Chromium."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class Browser:
    """One page of a Chromium.

    Attributes:
        problems: errors of the console, uncaught exceptions, and requests that failed.
        requested: the addresses of all requests.
    """

    def __init__(self, executable: str, profile: Path) -> None:
        to_read, to_write = os.pipe(), os.pipe()  # Chromium reads file 3 and writes file 4
        self._out, self._in = to_read[1], to_write[0]
        launch = 'exec "$@" 3<&%d 4>&%d' % (to_read[0], to_write[1])  # noqa: UP031
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        options += ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
        options += ["--disable-quic", f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(
            ["bash", "-c", launch, "bash", executable, *options, "--remote-debugging-pipe", "about:blank"],
            pass_fds=(to_read[0], to_write[1]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read[0])
        os.close(to_write[1])
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.problems: list[str] = []
        self.requested: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self._record(answer)

    def open(self, address: str) -> None:
        """Open a page and wait until it is loaded."""
        self.call("Page.navigate", url=address)
        self.wait(f"document.readyState === 'complete' && location.href === {json.dumps(address)}")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, userGesture=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, condition: str) -> Any:
        """Wait until an expression in the page is true."""
        return wait_for(lambda: self.run(condition), condition)

    def type(self, text: str) -> None:
        """Type a text into the element that has the focus."""
        for letter in text:
            self.call("Input.dispatchKeyEvent", type="keyDown", text=letter, key=letter)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=letter)

    def size(self, width: int, height: int) -> None:
        """Set the size of the window."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def screenshot(self) -> bytes:
        """The window as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], PATIENCE)
            part = os.read(self._in, 1 << 20) if ready else b""
            assert part, "Chromium does not answer"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def _record(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requested.append(params["request"]["url"])
            case "Network.responseReceived" if params["response"]["status"] >= 400:
                self.problems.append(f"{params['response']['status']}: {params['response']['url']}")
            case "Network.loadingFailed" if not params.get("canceled"):
                self.problems.append(params["errorText"])
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert"):
                self.problems.append(json.dumps(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.problems.append(params["entry"]["text"])


def wait_for(condition: Callable[[], Any], name: str) -> Any:
    """Call a function until it returns something true, and return that."""
    end = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < end, name
        time.sleep(0.02)
    return value
