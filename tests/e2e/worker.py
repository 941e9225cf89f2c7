"""An LLM worker for the proxies: ``python worker.py PORT NAME``. Says who served; keeps what it was sent for ``GET /seen``."""

from __future__ import annotations

import http.server
import json
import sys

SEEN: list[str] = []


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """What was sent so far."""
        self._answer(json.dumps(SEEN).encode())

    def do_POST(self) -> None:
        """Serve a turn."""
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        SEEN.append(f"{self.requestline}\n{self.headers}{body.decode(errors='replace')}")
        self._answer(json.dumps({"served_by": sys.argv[2], "scope": self.headers.get("x-limpet-scope")}).encode())

    def _answer(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Quiet."""


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
