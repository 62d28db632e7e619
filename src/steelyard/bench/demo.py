"""The demonstration: one skewed stream through plain Spark, through hashing and through Prompt.

`steelyard demo` runs it. What it shows is told in `docs/demo.md`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from rich.console import Console

from steelyard.bench.charts import PlottingError
from steelyard.bench.demo_page import write_page, write_picture
from steelyard.bench.demo_stream import ENGINES, HASH, PLAIN, PROMPT, SLOTS, Scenario, run, write_input
from steelyard.bench.demo_view import View, median
from steelyard.bench.demo_work import LookUp, Score
from steelyard.bench.environment import cores
from steelyard.bench.registry import DEFAULT_OUT, DEFAULT_SEED
from steelyard.core.errors import SteelyardError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_SECONDS = 60.0
"""About what everything takes on two cores, the start of Spark included."""
SECONDS_A_BATCH = 30.0
"""What one more batch costs: in every engine and scenario."""
NARROWEST = 100


class WrongAnswerError(SteelyardError):
    """Two engines gave different answers to the same stream."""


def main(words: Sequence[str] = ()) -> int:
    """Run the demonstration with the options `--out`, `--seconds` and `--seed`; gives the exit code."""
    parser = argparse.ArgumentParser(prog="steelyard demo")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--seconds", type=float, default=DEFAULT_SECONDS)
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    options = parser.parse_args(list(words))
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, NARROWEST))
    out = options.out / "demo"
    out.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    log = out / "spark.log"
    console.print(f"Starting Spark with {SLOTS} slots; its own messages go to {log}", highlight=False, soft_wrap=True)
    with quiet_session(log) as spark:
        demonstrate(spark, out, scenarios(options.seconds, options.seed), console)
    console.print(f"[dim]{time.perf_counter() - begun:.0f} s in all[/dim]", highlight=False)
    return 0


def scenarios(seconds: float, seed: int) -> list[Scenario]:
    """The two scenarios, with as many batches as fit into about `seconds`.

    >>> [(one.name, one.batches) for one in scenarios(60, seed=7)]
    [('waiting', 2), ('computing', 1)]
    """
    batches = max(1, round(seconds / SECONDS_A_BATCH))
    waiting = Scenario(
        "waiting",
        "each row asks a remote service and waits 0.25 ms; balance shows on the clock",
        LookUp(wait_us=250),
        rows=26_000,
        batches=batches,
        interval=3.0,
        waits=True,
        seed=seed,
    )
    computing = Scenario(
        "computing",
        f"each row is scored in Python; {cores()} cores share the work of {SLOTS} tasks, so balance shows in the "
        "longest task, not on the clock",
        Score(rounds=100),
        rows=40_000,
        batches=max(1, batches - 1),  # its figures vary less
        interval=3.0,
        waits=False,
        warm_ups=1,  # what the scenario before it did not warm up
        seed=seed,
    )
    return [waiting, computing]


def demonstrate(spark: SparkSession, out: Path, chosen: Sequence[Scenario], console: Console) -> None:
    """Run scenarios, compare the engines' answers, write `demo.png`, `index.html` and `demo.json` to `out`.

    Raises WrongAnswerError where two engines do not agree.
    """
    views = []
    with tempfile.TemporaryDirectory(prefix="steelyard-demo-") as scratch:
        for scenario in chosen:
            folder = Path(scratch) / scenario.name
            write_input(folder / "input", scenario)
            with View(scenario, console) as view:
                found = {}
                for engine in ENGINES:
                    view.begin(engine)
                    found[engine] = run(engine, spark, scenario, folder, view.add)
            views.append(view)
            compare(found, scenario)
            count = found[PLAIN].num_rows
            console.print(f"[green]All three gave the same {count:,} answers.[/green]\n", highlight=False)
    said = gains(views)
    for sentence in said:
        console.print(sentence, highlight=False, soft_wrap=True)
    _write(out, views, said, console)


def compare(found: dict[str, pa.Table], scenario: Scenario) -> None:
    """Raise WrongAnswerError unless all engines gave the same answers."""
    right = found[PLAIN]
    for engine, given in found.items():
        if given.equals(right):
            continue
        here, there = ({tuple(row.values()) for row in table.to_pylist()} for table in (given, right))
        first = min(here ^ there, default="one that is repeated")
        raise WrongAnswerError(
            f"{scenario.name}: {engine} and {PLAIN} differ in {len(here ^ there)} answers of {right.num_rows}; "
            f"the first (window, key, total) is {first}"
        )


def gains(views: Sequence[View]) -> list[str]:
    """Three sentences from what was measured: balance, time where tasks wait, longest task where they compute."""
    sentences: list[str] = []
    for view in views:
        counted = {engine: view.counted(engine) for engine in ENGINES}
        largest = {engine: median(batches, "largest_over_mean") for engine, batches in counted.items()}
        seconds = {engine: median(batches, "seconds") for engine, batches in counted.items()}
        longest = {engine: median(batches, "critical_path") for engine, batches in counted.items()}
        if not sentences:
            sentences.append(
                f"Balance: the largest of {SLOTS} tasks had {largest[HASH]:.2f} times the mean rows by hash, "
                f"{largest[PROMPT]:.2f} times by Prompt."
            )
        if view.scenario.waits:
            sentences.append(
                f"Waiting: a batch took {seconds[PROMPT]:.2f} s by Prompt, {seconds[HASH]:.2f} s by hash and "
                f"{seconds[PLAIN]:.2f} s in plain Spark: {seconds[HASH] / seconds[PROMPT]:.1f} and "
                f"{seconds[PLAIN] / seconds[PROMPT]:.1f} times as long."
            )
        else:
            sentences.append(
                f"Computing: the longest task took {longest[PROMPT]:.2f} s of processor time by Prompt, "
                f"{longest[HASH]:.2f} s by hash and {longest[PLAIN]:.2f} s in plain Spark; the clock of {cores()} "
                f"cores said {seconds[PROMPT]:.2f}, {seconds[HASH]:.2f} and {seconds[PLAIN]:.2f} s."
            )
    return sentences


def _write(out: Path, views: Sequence[View], said: Sequence[str], console: Console) -> None:
    record = [
        {"scenario": view.scenario.name, "rows": view.scenario.rows, "interval_s": view.scenario.interval}
        | {"keys": view.scenario.keys, "exponent": view.scenario.exponent, "seed": view.scenario.seed}
        | {"batches": [vars(batch) for batch in view.batches]}
        for view in views
    ]
    (out / "demo.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    page = write_page(out / "index.html", views, said)
    console.print(f"Page: {page}", highlight=False, soft_wrap=True)
    try:
        picture = write_picture(out / "demo.png", views)
        console.print(f"Chart: {picture}", highlight=False, soft_wrap=True)
    except PlottingError as problem:
        console.print(f"no chart: {problem}", style="yellow", highlight=False)


@contextmanager
def quiet_session(log: Path) -> Iterator[SparkSession]:
    """A session with 8 slots whose JVM writes its messages to the file `log`; stopped at the end."""
    import steelyard as sy  # noqa: PLC0415 - `import demo` starts nothing

    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    with _stderr_to(log):
        spark = sy.session(
            "steelyard demo",
            master=f"local[{SLOTS}]",
            config={
                "spark.sql.shuffle.partitions": str(SLOTS),
                # Plain Spark would put these small batches into fewer tasks and have less to compare.
                "spark.sql.adaptive.coalescePartitions.enabled": "false",
                "spark.driver.memory": "2g",
                # A minute is too short for the JVM's second compiler to pay: it would take the cores from the tasks.
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            },
        )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Processes that start inside write their standard error to a file for as long as they live."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
