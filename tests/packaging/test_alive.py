"""The image's health check: the standard library alone, one line when it fails."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "docker" / "alive.py"


class Handler(http.server.BaseHTTPRequestHandler):
    """Live, but not ready."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/livez" else 503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def check(url: str) -> subprocess.CompletedProcess[str]:
    environ = {"http_proxy": "http://127.0.0.1:9"}  # not for loopback
    return subprocess.run([sys.executable, "-IS", SCRIPT, url], env=environ, capture_output=True, text=True, timeout=20)


def test_a_live_server_is_well(server: str) -> None:
    """200 is 0, in silence, whatever proxy the environment names."""
    done = check(f"{server}/livez")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("path", ["/readyz", None])
def test_what_does_not_answer_is_not(server: str, path: str | None) -> None:
    """Another status, or nobody there, is 1, and one line that says which URL."""
    url = f"{server}{path}" if path else "http://127.0.0.1:9/livez"
    done = check(url)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith(url)
    assert done.stdout.count("\n") == 1
