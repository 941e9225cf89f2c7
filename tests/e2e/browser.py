"""Debian's Chromium, driven through chromedriver by the WebDriver protocol: it is JSON over HTTP, so it needs no package."""

from __future__ import annotations

import base64
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx

from tests.support.servers import wait_until

__all__ = ["Browser"]

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"tab": "\ue004", "enter": "\ue007", "escape": "\ue00c"}


class Browser:
    """One headless browser. Anything that the console's scripts log as an error is kept by the browser: see :meth:`errors`."""

    def __init__(self, folder: Path) -> None:
        log = folder / "chromedriver"
        with log.open("wb") as out:
            self._driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=out, stderr=subprocess.STDOUT)
        started = re.compile(r"successfully on port (\d+)")
        wait_until(lambda: started.search(log.read_text()), 20, "chromedriver")
        found = started.search(log.read_text())
        assert found is not None
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{found[1]}", timeout=60)
        flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={folder / 'profile'}",
        ]
        wanted = {"browserName": "chrome", "goog:chromeOptions": {"args": flags}, "goog:loggingPrefs": {"browser": "ALL"}}
        answer = self._http.post("/session", json={"capabilities": {"alwaysMatch": wanted}}).json()["value"]
        assert "sessionId" in answer, answer
        self._base = f"/session/{answer['sessionId']}"

    def _do(self, method: str, path: str, **body: Any) -> Any:
        answer = self._http.request(method, self._base + path, json=body if method == "POST" else None).json()["value"]
        assert not (isinstance(answer, dict) and "error" in answer), answer
        return answer

    def open(self, url: str) -> None:
        """Go there."""
        self._do("POST", "/url", url=url)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script of the page's world returns."""
        return self._do("POST", "/execute/sync", script=script, args=list(arguments))

    def cdp(self, command: str, **parameters: Any) -> Any:
        """One command of the DevTools protocol."""
        return self._do("POST", "/goog/cdp/execute", cmd=command, params=parameters)

    def size(self, width: int, height: int, *, phone: bool = False) -> None:
        """The viewport."""
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def scheme(self, value: str) -> None:
        """light or dark, as the system would say."""
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def text(self, css: str) -> str:
        """The visible text of the first element that matches; empty if none does."""
        found: str = self.run("return document.querySelector(arguments[0])?.innerText ?? ''", css)
        return found

    def wait_for(self, css: str, words: str, timeout_s: float = 15) -> None:
        """Until an element's text holds the words."""
        wait_until(lambda: words in self.text(css), timeout_s, f"{words!r} in {css}; it is {self.text(css)!r}")

    def _element(self, css: str) -> str:
        found = self._do("POST", "/element", using="css selector", value=css)
        name: str = found[ELEMENT]
        return name

    def click(self, css: str) -> None:
        """As a mouse does."""
        self._do("POST", f"/element/{self._element(css)}/click")

    def type(self, css: str, text: str) -> None:
        """Into a field."""
        self._do("POST", f"/element/{self._element(css)}/value", text=text)

    def press(self, key: str) -> None:
        """A key, wherever the focus is."""
        value = KEYS.get(key, key)
        actions = [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self._do("POST", "/actions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def errors(self) -> list[str]:
        """What the browser complained about since the last call, refused requests aside (the console says those itself)."""
        entries = self._do("POST", "/se/log", type="browser")
        severe = [entry["message"] for entry in entries if entry["level"] == "SEVERE"]
        return [each for each in severe if "Failed to load resource" not in each]

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """A screenshot."""
        shot = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """End it."""
        self._http.delete(self._base)
        self._http.close()
        self._driver.terminate()
        self._driver.wait(10)
