"""Run an experiment: call it, write its JSON and picture, show its figures, and end with one line of JSON."""

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
from steelyard.bench.environment import load, machine, versions
from steelyard.bench.registry import Experiment, Run
from steelyard.bench.result import Result
from steelyard.bench.tables import plain

FORMAT = "steelyard-benchmark/1"
"""Marks a JSON file as one of ours, since other things are written into the same directory."""


def run_experiment(experiment: Experiment, run: Run, console: Console) -> Result:
    """Run one experiment and write, show and print what it found.

    The last line on `console` is one compact JSON object with the experiment's name and metrics. Whatever the
    experiment raises goes through.
    """
    console.print(f"[bold]{escape(experiment.name)}[/bold]: {escape(experiment.title)}")
    begun = datetime.now(UTC)
    clock, loaded = time.perf_counter(), load()
    result = experiment(run)
    seconds = time.perf_counter() - clock
    run.out.mkdir(parents=True, exist_ok=True)
    record = {
        "format": FORMAT,
        "name": experiment.name,
        "title": experiment.title,
        "figure": experiment.figure,
        "command": command_line(experiment, run),
        "started": begun.isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "quick": run.quick,
        "seed": run.seed,
        "versions": versions(),
        "machine": machine(),
        "load": {"before": loaded, "after": load()},
        **result.to_dict(),
    }
    picture = _draw(experiment, record, run.out, console)
    record["picture"] = picture.name if picture else None
    saved = run.out / f"{experiment.name}.json"
    saved.write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    show(result, console)
    console.print(f"[dim]{escape(str(saved))}{escape(f', {picture}') if picture else ''}[/dim]", soft_wrap=True)
    # Written past rich, which would fold and colour the line.
    console.file.write(last_line(experiment.name, result) + "\n")
    console.file.flush()
    return result


def command_line(experiment: Experiment, run: Run) -> str:
    """The command that measures this again, wherever its files go."""
    words = ["steelyard", "bench", "run", experiment.name, *(["--quick"] if run.quick else [])]
    return shlex.join([*words, "--seed", str(run.seed)])


def last_line(name: str, result: Result) -> str:
    """One compact JSON object for programs.

    >>> last_line("planning", Result({}, {"plan_ms": 2.5}))
    '{"name":"planning","metrics":{"plan_ms":2.5}}'
    """
    return json.dumps({"name": name, "metrics": plain(result.metrics)}, separators=(",", ":"), allow_nan=False)


def _draw(experiment: Experiment, record: Mapping[str, Any], out: Path, console: Console) -> Path | None:
    """The picture of what is saved, so that it can be drawn again from the JSON alone."""
    try:
        return experiment.save_picture(Result.from_dict(record), out / f"{experiment.name}.png")
    except charts.PlottingError as problem:
        console.print(f"[yellow]no picture: {escape(str(problem))}[/yellow]")
        return None
