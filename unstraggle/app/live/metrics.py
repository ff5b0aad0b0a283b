"""The same numbers as text for Prometheus (exposition format 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .state import State


def metrics(state: State) -> str:
    """All metrics, a sample per line."""
    with state.lock:
        return "\n".join(_lines(state)) + "\n"


def _lines(state: State) -> Iterator[str]:
    totals = state.totals
    counters = {
        "steps": ("steps", "Steps done."),
        "exact_steps": ("exact", "Steps whose gradient was exact."),
        "skipped_steps": ("skipped", "Steps without a gradient."),
        "received_bytes": ("bytes", "Bytes of messages that were used."),
        "damaged_messages": ("damaged", "Messages refused as damaged."),
        "duplicate_messages": ("duplicates", "Messages that came twice."),
        "stale_messages": ("stale", "Messages of earlier rounds."),
    }
    for name, (key, about) in counters.items():
        yield from _metric(f"{name}_total", "counter", about, [("", totals[key])])
    for name, about, seconds in (("wall", "Wall-clock time of a step.", state.wall), ("wait", "Wait for a round.", state.wait)):
        yield f"# HELP unstraggle_{name}_seconds {about}"
        yield f"# TYPE unstraggle_{name}_seconds summary"
        yield f"unstraggle_{name}_seconds_sum {seconds:.9g}"
        yield f"unstraggle_{name}_seconds_count {totals['steps']}"
    loss = next((record["loss"] for record in reversed(state.records) if record["loss"] is not None), None)
    if loss is not None:
        yield from _metric("loss", "gauge", "Loss of the last step that tells it.", [("", loss)])
    workers = range(state.n)
    for name, count in (("used", state.used), ("late", state.late), ("lost", state.lost)):
        samples = [(f'{{worker="{w}"}}', count[w]) for w in workers]
        yield from _metric(f"worker_{name}_steps_total", "counter", f"Steps in which a worker was {name}.", samples)
    up = [(f'{{worker="{w}"}}', int(w not in state.gone)) for w in workers]
    yield from _metric("worker_up", "gauge", "Whether a worker is there.", up)


def _metric(name: str, kind: str, about: str, samples: Sequence[tuple[str, float]]) -> Iterator[str]:
    yield f"# HELP unstraggle_{name} {about}"
    yield f"# TYPE unstraggle_{name} {kind}"
    for labels, value in samples:
        yield f"unstraggle_{name}{labels} {value:.9g}" if isinstance(value, float) else f"unstraggle_{name}{labels} {value}"
