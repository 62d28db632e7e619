"""The demonstration: one skewed stream through plain Spark, as a newcomer and as an expert writes it, and Steelyard.

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
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from rich.console import Console

from steelyard.bench.charts import PlottingError
from steelyard.bench.demo.page import write_page, write_picture
from steelyard.bench.demo.stream import EXPERT, NEWCOMER, OURS, SLOTS, WAYS, Scenario, run, write_input
from steelyard.bench.demo.view import View, median
from steelyard.bench.demo.work import LookUp
from steelyard.bench.registry import DEFAULT_OUT, DEFAULT_SEED
from steelyard.core.errors import SteelyardError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_SECONDS = 75.0
"""About what everything takes on two cores, the start of Spark included."""
SECONDS_BEFORE, SECONDS_PER_BATCH = 40.0, 17.0
"""What Spark's start and the warm-ups take, and one batch in every way."""
NARROWEST = 100


class WrongAnswerError(SteelyardError):
    """Two ways gave different answers to the same stream."""


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
        said = demonstrate(spark, out, scenario(options.seconds, options.seed), console)
    console.print(f"[dim]{time.perf_counter() - begun:.0f} s in all[/dim]", highlight=False)
    console.print(said[-1], style="bold", highlight=False, soft_wrap=True)
    return 0


def scenario(seconds: float, seed: int) -> Scenario:
    """The scenario, with as many batches as fit into about `seconds`.

    >>> [scenario(seconds, seed=7).batches for seconds in (10, 75, 110)]
    [1, 2, 4]
    """
    batches = max(1, round((seconds - SECONDS_BEFORE) / SECONDS_PER_BATCH))
    return Scenario(LookUp(wait_us=500, fetch_us=20_000), rows=12_000, batches=batches, seed=seed)


def demonstrate(spark: SparkSession, out: Path, chosen: Scenario, console: Console) -> list[str]:
    """Run all ways, compare their answers, write `demo.png`, `index.html` and `demo.json` to `out`; what to say of it.

    Raises WrongAnswerError where two ways do not agree.
    """
    found = {}
    with tempfile.TemporaryDirectory(prefix="steelyard-demo-") as scratch, View(chosen, console) as view:
        write_input(Path(scratch) / "input", chosen)
        for way in WAYS:
            view.begin(way)
            found[way] = run(way, spark, chosen, Path(scratch), view.add)
    compare(found)
    count = found[OURS].num_rows
    console.print(f"[green]All {len(WAYS)} gave the same {count:,} answers.[/green]\n", highlight=False)
    said = gains(view)
    for sentence in said[:-1]:
        console.print(sentence, highlight=False, soft_wrap=True)
    _write(out, view, said, console)
    return said


def compare(found: dict[str, pa.Table]) -> None:
    """Raise WrongAnswerError unless all ways gave the same answers."""
    right = found[NEWCOMER]
    for way, given in found.items():
        if given.equals(right):
            continue
        here, there = ({tuple(row.values()) for row in table.to_pylist()} for table in (given, right))
        first = min(here ^ there, default="one that is repeated")
        raise WrongAnswerError(
            f"'{way}' and '{NEWCOMER}' differ in {len(here ^ there)} answers of {right.num_rows}; "
            f"the first (window, key, total) is {first}"
        )


def gains(view: View) -> list[str]:
    """Sentences from what was measured: why each way takes as long, and last how ours compares with the best other."""
    counted = {way: view.counted(way) for way in WAYS}
    seconds = {way: median(batches, "seconds") for way, batches in counted.items()}
    fetched = {way: round(median(batches, "fetched")) for way, batches in counted.items()}
    largest = {way: median(batches, "largest_over_mean") for way, batches in counted.items()}
    spread, by_key, salted = EXPERT
    chosen = counted[OURS][-1].policy
    best = min((way for way in WAYS if way != OURS), key=lambda way: seconds[way])
    return [
        f"Why: spreading rows fetches {fetched[spread]:,} times instead of {fetched[by_key]:,}; by key, one task has "
        f"{largest[by_key]:.1f} times the mean rows; salted, {largest[salted]:.1f} times, and {fetched[salted]:,} "
        f"fetches; Steelyard, which chose {chosen}, {largest[OURS]:.1f} times, and {fetched[OURS]:,} fetches.",
        f"Steelyard took {seconds[OURS]:.2f} s per batch, the best of the other ways ({best}) {seconds[best]:.2f} s: "
        f"{_compared(seconds[best], seconds[OURS])} ({_compared(seconds[NEWCOMER], seconds[OURS])} than a newcomer's).",
    ]


def _compared(theirs: float, ours: float) -> str:
    """How ours compares, in words.

    >>> _compared(3.0, 2.0), _compared(2.0, 3.0)
    ('1.50 times faster', '1.50 times slower')
    """
    return f"{theirs / ours:.2f} times faster" if theirs >= ours else f"{ours / theirs:.2f} times slower"


def _write(out: Path, view: View, said: Sequence[str], console: Console) -> None:
    chosen = view.scenario
    record = {
        "rows": chosen.rows,
        "keys": chosen.keys,
        "exponent": chosen.exponent,
        "seed": chosen.seed,
        "row_us": chosen.work.wait_us,
        "fetch_us": chosen.work.fetch_us,
        "batches": [asdict(batch) for batch in view.batches],
    }
    (out / "demo.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    page = write_page(out / "index.html", view, said)
    console.print(f"Page: {page}", highlight=False, soft_wrap=True)
    try:
        picture = write_picture(out / "demo.png", view)
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
                # Plain Spark would put these small batches into fewer tasks, and each way would take longer.
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
