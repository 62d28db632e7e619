"""From `sy.session` to the first result, in processes that have just started: how much of it is Spark's own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from steelyard.bench import Cell, Result, Run, Table, Target, WrongAnswerError, charts, experiment, over
from steelyard.bench.engine import first_batch_program
from steelyard.bench.engine.aggregate import write_rows
from steelyard.bench.engine.first_batch_program import AHEAD, ALONE, PLAIN, SLOTS, STEPS
from steelyard.core.errors import SteelyardError

ROWS, KEYS, EXPONENT, BATCHES = 20_000, 1_000, 1.2, 3
TURNS, QUICK_TURNS = 7, 1
PATIENCE = 300.0
WAYS = (PLAIN, ALONE, AHEAD)


def cold(way: str, rows: Path) -> dict[str, Any]:
    """What the program of one way told, in a process of its own with an empty checkpoint."""
    with tempfile.TemporaryDirectory(prefix="steelyard-first-batch-") as scratch:
        (Path(scratch) / "rows").symlink_to(rows)
        command = [sys.executable, "-P", first_batch_program.__file__, way, scratch]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode:
        raise SteelyardError(f"{way} ended with code {done.returncode}: {done.stderr[-500:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


@experiment("first-batch", title="From a session to the first result, in processes that have just started")
def first_batch(run: Run) -> Result:
    """Seconds to the first result of plain Spark, and of Steelyard with and without what it does while Spark starts."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory(prefix="steelyard-first-batch-") as scratch:
        rows = write_rows(Path(scratch) / "rows", ROWS * BATCHES, KEYS, EXPONENT, run.seed, files=BATCHES)
        ways = WAYS[1:] if run.quick else WAYS
        cold(AHEAD, rows)  # what is compiled is kept for later processes
        answers = []
        for turn in run.progress.track(range(run.pick(TURNS, QUICK_TURNS)), "turns"):
            for way in ways if turn % 2 == 0 else reversed(ways):
                one = cold(way, rows)
                found[way].append(one["seconds"])
                answers.append(one["answer"])
                if one["answer"] != answers[0]:
                    raise WrongAnswerError(f"{way} gave other answers than the process before")
    return result_of({way: taken for way, taken in found.items() if taken})


def result_of(found: Mapping[str, Sequence[Mapping[str, float]]]) -> Result:
    """Medians over the turns, and ratios turn by turn."""
    middle = {way: {step: median(one[step] for one in taken) for step in STEPS} for way, taken in found.items()}
    first = {way: [one["first"] for one in taken] for way, taken in found.items()}
    metrics = {
        "first_result_s": middle[AHEAD]["first"],
        "first_result_nothing_ahead_s": middle[ALONE]["first"],
        "session_s": middle[AHEAD]["session"],
        "session_share": middle[AHEAD]["session"] / middle[AHEAD]["first"],
        "first_result_vs_nothing_ahead": median(over(first[AHEAD], first[ALONE])),
    }
    if PLAIN in found:
        metrics["first_result_plain_spark_s"] = middle[PLAIN]["first"]
        metrics["first_result_vs_plain_spark"] = median(over(first[AHEAD], first[PLAIN]))
    rows: list[list[Cell]] = [
        [way, *(middle[way][step] for step in STEPS), min(first[way]), max(first[way])] for way in found
    ]
    return Result(
        parameters={"slots": SLOTS, "rows": ROWS, "keys": KEYS, "turns": len(found[AHEAD])},
        metrics=metrics,
        tables=[Table("seconds until", ("way", *STEPS, "first, least", "first, most"), rows)],
        targets=[
            Target(
                "first_result_vs_nothing_ahead",
                at_most=1.0,
                explanation="what is loaded ahead takes processor time from the JVM, which starts beside it",
            )
        ],
        notes=[
            f"From before `import steelyard` to the first result of batches of {ROWS:,} rows with a function in Python "
            "and two sums for each key. Each process is new, ways take turns, and what numba compiles is kept from "
            "one before. session: Spark is there; first, second: the sink has a batch's results.",
            "Plain Spark has no log of partials and no plan. A quick run leaves it out.",
        ],
    )


@first_batch.picture
def _picture(figure: charts.Figure, result: Result) -> None:
    times = {str(row["way"]): float(row["first"]) for row in result.tables[0].records()}
    charts.bars(figure.add_subplot(), times, title="To the first result of a new process", x="seconds", y="way")
