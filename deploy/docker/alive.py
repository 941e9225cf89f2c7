"""The health check of the image: asks ``/livez`` of the server that is process 1, with the standard library alone.

``python -IS alive.py [URL]``. Without a URL the port is LIMPET_PORT, else the default of the command that process 1 runs.
Exit code 0 when it answers 200, 1 with one line otherwise.
"""

import os
import sys
import urllib.request
from pathlib import Path

TIMEOUT_S = 3.0


def default_url() -> str:
    """Where the server of this container listens."""
    arguments = Path("/proc/1/cmdline").read_bytes().split(b"\0")
    port = os.environ.get("LIMPET_PORT") or ("5468" if b"gateway" in arguments else "5467")
    return f"http://127.0.0.1:{port}/livez"


def main(arguments: list[str]) -> int:
    """Ask once."""
    url = arguments[0] if arguments else default_url()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy of the environment is not for loopback
    try:
        with opener.open(url, timeout=TIMEOUT_S) as answer:
            answer.read()
    except OSError as error:
        sys.stdout.write(f"{url} does not answer as a live server would: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
