"""The HTTP layer over a recording stand-in of the library: no store, since none of these tests is about one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from limpet.health import Check, Health
from limpet.results import Advanced, Binding, Forgotten, Resolution, Suspended
from limpet.service.app import Service
from limpet.service.build import build
from limpet.settings import Settings

RESOLUTION = Resolution("k", "s", 28_000_000_000_000, 1, "gwk_0", "declared", created=True)
BINDING = Binding("continue", "bound", worker="18446744073709551615", fence=28_000_000_000_000)
ANSWERS: dict[str, Any] = {
    "resolve": RESOLUTION,
    "peek": RESOLUTION,
    "advance": Advanced(2, 2, 1, "gwk_1", True),
    "suspend": Suspended(1, True),
    "forget": Forgotten(1, True),
    **dict.fromkeys(("confirm", "abort", "release", "renew", "rebind"), BINDING),
}


class Recorder:
    """Answers every call of one namespace with something fixed, or an error, and remembers it."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.errors: dict[str, BaseException] = {}
        self.answers = dict(ANSWERS)
        self.closed = False
        self.ok = True

    async def open(self) -> None:
        """Nothing."""

    async def close(self) -> None:
        """Remembered."""
        self.closed = True

    async def health(self) -> Health:
        """One check."""
        return Health(self.ok, (Check("store", "ok" if self.ok else "fail", "words"),))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in ANSWERS:
            raise AttributeError(name)

        async def call(*args: Any, **options: Any) -> Any:
            self.calls.append((name, args, options))
            if name in self.errors:
                raise self.errors[name]
            return self.answers[name]

        return call


class Bench:
    """A service over recorders, and a client of it."""

    def __init__(self, **flags: Any) -> None:
        self.recorders: dict[str, Recorder] = {}
        self.app: Service = build(Settings.load(**flags), self.connect).app
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://limpet")

    def connect(self, namespace: str) -> Any:
        return self.recorders.setdefault(namespace, Recorder(namespace))

    @property
    def calls(self) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
        """The calls of the default namespace."""
        return self.recorders["default"].calls if "default" in self.recorders else []

    def failing(self, operation: str, error: BaseException) -> None:
        """From now on that call of the default namespace fails."""
        self.connect("default").errors[operation] = error


@pytest.fixture
async def make_bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> AsyncIterator[Callable[..., Bench]]:
    """A function that makes a bench with some settings."""
    monkeypatch.chdir(tmp_path)
    benches: list[Bench] = []

    def make(**flags: Any) -> Bench:
        benches.append(Bench(**flags))
        return benches[-1]

    yield make
    for bench in benches:
        await bench.http.aclose()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    """A bench without tokens."""
    return make_bench()
