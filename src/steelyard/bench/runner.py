"""Run a benchmark: call it, write its JSON and picture, show its figures, and end with one line of JSON."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from steelyard.bench import charts
from steelyard.bench.display import show
from steelyard.bench.environment import machine, versions
from steelyard.bench.registry import Benchmark, Run
from steelyard.bench.result import Result, plain

FORMAT = "steelyard-benchmark/1"
"""Marks a JSON file as one of ours, since other things are written into the same directory."""


def run_benchmark(benchmark: Benchmark, run: Run, console: Console) -> Result:
    """Run one benchmark and write, show and print what it found.

    The last line on `console` is one compact JSON object with the benchmark's name and metrics. Whatever the
    benchmark raises goes through.
    """
    console.print(f"[bold]{escape(benchmark.name)}[/bold]: {escape(benchmark.title)}")
    begun = datetime.now(UTC)
    clock = time.perf_counter()
    result = benchmark.function(run)
    seconds = time.perf_counter() - clock
    run.out.mkdir(parents=True, exist_ok=True)
    record = {
        "format": FORMAT,
        "name": benchmark.name,
        "title": benchmark.title,
        "figure": benchmark.figure,
        "command": command_line(benchmark, run),
        "started": begun.isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "quick": run.quick,
        "seed": run.seed,
        "versions": versions(),
        "machine": machine(),
        **result.to_dict(),
    }
    picture = _draw(record, run.out / f"{benchmark.name}.png", console)
    record["picture"] = picture.name if picture else None
    saved = run.out / f"{benchmark.name}.json"
    saved.write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    show(result, console)
    console.print(f"[dim]{escape(str(saved))}{escape(f', {picture}') if picture else ''}[/dim]", soft_wrap=True)
    # Written past rich, which would fold and colour the line.
    console.file.write(last_line(benchmark.name, result) + "\n")
    console.file.flush()
    return result


def command_line(benchmark: Benchmark, run: Run) -> str:
    """The command that measures this again, wherever its files go."""
    words = ["steelyard", "bench", "run", benchmark.name, *(["--quick"] if run.quick else [])]
    return shlex.join([*words, "--seed", str(run.seed)])


def last_line(name: str, result: Result) -> str:
    """One compact JSON object for programs.

    >>> last_line("planning", Result({}, {"plan_ms": 2.5}))
    '{"name":"planning","metrics":{"plan_ms":2.5}}'
    """
    return json.dumps({"name": name, "metrics": plain(result.metrics)}, separators=(",", ":"), allow_nan=False)


def _draw(record: Mapping[str, Any], path: Path, console: Console) -> Path | None:
    """The picture of what is saved, so that it can be drawn again from the JSON alone."""
    try:
        return charts.save(charts.draw_result(record["name"], Result.from_dict(record)), path)
    except charts.PlottingError as problem:
        console.print(f"[yellow]no picture: {escape(str(problem))}[/yellow]")
        return None
