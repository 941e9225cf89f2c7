"""The metrics of design section 10: right numbers, bounded labels, and the same answer from every process."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from limpet.health import Check, Health
from limpet.instruments import Instruments, NullMetrics
from limpet.metrics import MAX_NAMESPACES, MAX_WORKERS, Metrics

HEALTH = Health.of((Check("store", "ok", ""), Check("memory", "warn", ""), Check("eviction", "fail", "")))


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Sample name and labels -> value."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def exercise(sink: Instruments) -> None:
    """Call every method once."""
    sink.resolution("default", "declared", "continued")
    sink.reset("idle")
    sink.rollback()
    sink.clock_behind()
    sink.bind("bind")
    sink.claim_timeout()
    sink.fence_rejection("confirm")
    sink.store_seconds("conversation_resolve", 0.0002)
    sink.store_error("timeout")
    sink.degraded()
    sink.undurable()
    sink.memo("hit")
    sink.batch_size(7)


def test_every_event_is_counted_once() -> None:
    """Each call of the core shows as exactly one in the metric that the design names."""
    metrics = Metrics()
    exercise(metrics)
    exercise(NullMetrics())
    found = samples(metrics.render({"w1": 3}, {"live": 2}, HEALTH))
    expected = {
        ("limpet_resolutions_total", (("namespace", "default"), ("outcome", "continued"), ("source", "declared"))): 1,
        ("limpet_resets_total", (("reason", "idle"),)): 1,
        ("limpet_rollbacks_total", ()): 1,
        ("limpet_clock_behind_total", ()): 1,
        ("limpet_binds_total", (("outcome", "bind"),)): 1,
        ("limpet_claim_timeouts_total", ()): 1,
        ("limpet_fence_rejections_total", (("operation", "confirm"),)): 1,
        ("limpet_store_seconds_count", (("command", "conversation_resolve"),)): 1,
        ("limpet_store_errors_total", (("kind", "timeout"),)): 1,
        ("limpet_degraded_total", ()): 1,
        ("limpet_undurable_total", ()): 1,
        ("limpet_memo_total", (("outcome", "hit"),)): 1,
        ("limpet_batch_size_sum", ()): 7,
        ("limpet_bindings", (("worker", "w1"),)): 3,
        ("limpet_workers", (("state", "live"),)): 2,
        ("limpet_workers", (("state", "gone"),)): 0,
        ("limpet_ready", ()): 0,
        ("limpet_health", (("check", "store"),)): 0,
        ("limpet_health", (("check", "memory"),)): 1,
        ("limpet_health", (("check", "eviction"),)): 2,
    }
    assert {key: found.get(key) for key in expected} == expected
    assert any(name == "limpet_build_info" and value == 1 for (name, _), value in found.items())


def test_reasons_of_hosts_fold() -> None:
    """A host may name any reason; the label does not grow with them."""
    metrics = Metrics()
    for i in range(500):
        metrics.reset(f"host-reason-{i}")
    metrics.reset("daily")
    found = {key: value for key, value in samples(metrics.render()).items() if key[0] == "limpet_resets_total"}
    assert found == {
        ("limpet_resets_total", (("reason", "other"),)): 500,
        ("limpet_resets_total", (("reason", "daily"),)): 1,
    }
    assert len(metrics._by_reason) == 2


def test_namespaces_fold() -> None:
    """Namespaces beyond the bound count as one, and nothing is lost."""
    metrics = Metrics()
    for i in range(MAX_NAMESPACES + 50):
        metrics.resolution(f"ns{i}", "declared", "continued")
    found = {key: value for key, value in samples(metrics.render()).items() if key[0] == "limpet_resolutions_total"}
    assert len(found) == MAX_NAMESPACES + 1
    assert sum(found.values()) == MAX_NAMESPACES + 50


def test_workers_fold() -> None:
    """The busiest workers are named, the rest are counted together."""
    found = samples(Metrics().render({f"w{i}": i + 1 for i in range(MAX_WORKERS + 20)}))
    bindings = {labels[0][1]: value for (name, labels), value in found.items() if name == "limpet_bindings"}
    assert len(bindings) == MAX_WORKERS + 1
    assert bindings["other"] == sum(range(1, 21))


CHILD = f"""
import sys
from limpet.metrics import Instruments, Metrics

{inspect.getsource(exercise)}

metrics = Metrics()
exercise(metrics)
sys.stdout.buffer.write(metrics.render())
"""


def test_processes_add_up(tmp_path: Path) -> None:
    """With a shared directory the process that answers reports the sum over all, the dead ones included."""
    env = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for _ in range(2):
        out = subprocess.run([sys.executable, "-c", CHILD], env=env, check=True, capture_output=True)
    found = samples(out.stdout)
    assert found["limpet_resets_total", (("reason", "idle"),)] == 2
    assert found["limpet_batch_size_sum", ()] == 14
    assert found["limpet_store_seconds_count", (("command", "conversation_resolve"),)] == 2
