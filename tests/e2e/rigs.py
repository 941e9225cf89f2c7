"""The rigs that bring real peers (a real Dynamo, a real AIPerf) as the tests drive them.

``LIMPET_RIGS`` is the folder that holds ``dynamo/rig.py`` and ``aiperf/rig.py`` (default: ``shared/rigs`` beside the checkout);
``LIMPET_RIG_STATE`` a folder for their environments, set up by the first test that needs one (some minutes, from PyPI).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.packaging.tools import missing

__all__ = ["Rig"]

ROOT = Path(__file__).parents[2]


class Rig:
    """One rig's commands."""

    def __init__(self, name: str, ready: str) -> None:
        folder = Path(os.environ.get("LIMPET_RIGS", ROOT.parent / "shared" / "rigs"))
        self.script = folder / name / "rig.py"
        if not self.script.is_file():
            missing(f"the rig of {name}", "set LIMPET_RIGS to the folder of the rigs", "rigs")
        state = Path(os.environ.get("LIMPET_RIG_STATE", Path(tempfile.gettempdir()) / "limpet-rigs"))
        self.directory = state / name
        self.environ = os.environ | {"RIG_DIR": str(self.directory)}
        if not (self.directory / ready).exists():
            self("setup")

    def __call__(self, *arguments: str) -> Any:
        """Run a command; the JSON that it prints last."""
        done = subprocess.run(
            [sys.executable, str(self.script), *arguments], env=self.environ, stdout=subprocess.PIPE, text=True, check=True
        )
        lines = done.stdout.strip().splitlines()
        return json.loads(lines[-1]) if lines else None
