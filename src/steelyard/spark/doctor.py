"""Checks what Spark needs on this machine, and says what to do where something is missing."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.core.errors import SteelyardError
from steelyard.spark.java import JavaError, require_java

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from rich.console import Console

    from steelyard.spark.kafka import Coordinate

GIBIBYTE = 2**30
LEAST_DISK_GIB = 2
LEAST_MEMORY_GIB = 3
"""The driver's heap of one GiB, Python's workers, and the rest of the machine."""
OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 13)


@dataclass(frozen=True)
class Finding:
    """One thing that was checked.

    Parameters
    ----------
    what
        What was looked at.
    good
        Whether it is as it should be.
    found
        What is there.
    remedy
        What to do where it is not good.
    needed
        Whether nothing works without it.
    """

    what: str
    good: bool
    found: str
    remedy: str = ""
    needed: bool = True


def examine(download: bool = False) -> Iterator[Finding]:
    """Check one thing after the other; those that need a Spark session come last.

    Parameters
    ----------
    download
        Fetch Kafka's connector where it is not there yet.
    """
    yield python_version(sys.version_info[:2])
    java = java_found()
    yield java
    yield pyspark_version()
    yield free_disk(local_directories())
    yield memory(memory_gib())
    yield matplotlib_found()
    if java.good:
        yield kafka_connector(download)
        yield from spark_works()
    else:
        yield Finding("Spark session", False, "not tried without Java", java.remedy)


def show(findings: Iterable[Finding], console: Console) -> bool:
    """Print each finding when it is there, and then the remedies; whether all that is needed is good."""
    bad = []
    for finding in findings:
        mark = (
            "[green]good[/green]" if finding.good else "[red]bad [/red]" if finding.needed else "[yellow]none[/yellow]"
        )
        console.print(mark, f"{finding.what:<20}", finding.found, highlight=False, soft_wrap=True)
        if not finding.good:
            bad.append(finding)
    for finding in bad:
        console.print(f"[bold]{finding.what}[/bold]:", finding.remedy, highlight=False, soft_wrap=True)
    needed = [finding for finding in bad if finding.needed]
    said = (
        "All that is needed is there."
        if not needed
        else f"{len(needed)} of the needed things are not as they should be."
    )
    console.print(said)
    return not needed


def python_version(version: tuple[int, ...]) -> Finding:
    """Whether this Python is one that Steelyard runs on.

    >>> python_version((3, 10)).remedy
    'make the environment with Python 3.11, 3.12 or 3.13'
    """
    good = OLDEST_PYTHON <= version[:2] <= NEWEST_PYTHON
    found = f"{'.'.join(map(str, version))} at {sys.executable}"
    return Finding("Python", good, found, "make the environment with Python 3.11, 3.12 or 3.13")


def java_found() -> Finding:
    """Whether there is a Java that Spark can run on."""
    try:
        return Finding("Java", True, str(require_java()))
    except JavaError as problem:
        return Finding("Java", False, "none that can be used", str(problem))


def pyspark_version() -> Finding:
    """Whether the installed PySpark is one that Steelyard is made for."""
    remedy = "pip install 'pyspark>=4.3,<4.4'"
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return Finding("PySpark", False, "not installed", remedy)
    return Finding("PySpark", version.split(".")[:2] == ["4", "3"], version, remedy)


def local_directories() -> list[Path]:
    """Where Spark puts shuffled rows: SPARK_LOCAL_DIRS, or the system's place for temporary files."""
    named = [Path(name) for name in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if name.strip()]
    return named or [Path(tempfile.gettempdir())]


def free_disk(directories: list[Path]) -> Finding:
    """Whether there is room for shuffled rows in every one of the directories."""
    remedy = f"make {LEAST_DISK_GIB} GiB free, or set SPARK_LOCAL_DIRS to a directory on a larger disk"
    missing = [str(directory) for directory in directories if not directory.is_dir()]
    if missing:
        return Finding("free disk", False, f"{', '.join(missing)} does not exist", remedy)
    free = {directory: shutil.disk_usage(directory).free / GIBIBYTE for directory in directories}
    found = ", ".join(f"{gib:.1f} GiB in {directory}" for directory, gib in free.items())
    return Finding("free disk", min(free.values()) >= LEAST_DISK_GIB, found, remedy)


def memory_gib() -> float | None:
    """Physical memory, or None where the system does not tell."""
    try:
        pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    return round(pages * page_bytes / GIBIBYTE, 1)


def memory(gib: float | None) -> Finding:
    """Whether the machine has memory for a driver and its Python workers."""
    remedy = f"use a machine with {LEAST_MEMORY_GIB} GiB or more, or fewer cores, as in master local[1]"
    if gib is None:
        return Finding("memory", True, "unknown", needed=False)
    return Finding("memory", gib >= LEAST_MEMORY_GIB, f"{gib} GiB", remedy, needed=False)


def matplotlib_found() -> Finding:
    """Whether pictures can be drawn."""
    if util.find_spec("matplotlib") is None:
        return Finding(
            "matplotlib", False, "not installed", "for pictures: pip install 'steelyard[plot]'", needed=False
        )
    return Finding("matplotlib", True, metadata.version("matplotlib"), needed=False)


def kafka_connector(download: bool) -> Finding:
    """Whether the jars of Kafka's connector are on this machine."""
    from steelyard.spark import kafka  # noqa: PLC0415 - imports pyspark

    what = "Kafka connector"
    try:
        if download:
            return Finding(what, True, f"{len(kafka.kafka_jars())} jars", needed=False)
        package = kafka.Coordinate.parse(kafka.kafka_packages()[0])
        return cached_connector(package, kafka.jar_cache())
    except SteelyardError as problem:
        return Finding(what, False, "cannot be had", str(problem), needed=False)


def cached_connector(package: Coordinate, cache: Path) -> Finding:
    """Whether the connector of this very Spark is in the cache; one of another release is named as such."""
    names = sorted(folder.name for folder in cache.glob(f"{package.artifact}-*"))
    if any(name.startswith(f"{package.artifact}-{package.version}-") for name in names):
        return Finding("Kafka connector", True, f"{package.version}, as Spark", needed=False)
    others = ", ".join(name.removeprefix(f"{package.artifact}-").rsplit("-", 1)[0] for name in names)
    found = f"only that of Spark {others}, this is {package.version}" if names else f"{package.version} is not there"
    remedy = (
        "only for Kafka: `steelyard doctor --download` fetches it; where the repository lacks it, name the packages of "
        "another release, as in sy.session(kafka=steelyard.spark.kafka.STAND_IN_PACKAGES)"
    )
    return Finding("Kafka connector", False, found, remedy, needed=False)


def spark_works() -> Iterator[Finding]:
    """Start a small local session and see what its tasks see."""
    try:
        from steelyard.spark.session import session  # noqa: PLC0415 - imports pyspark

        spark = session("doctor", master="local[1]")
    except Exception as problem:  # noqa: BLE001 - whatever stops Spark is the finding
        yield Finding("Spark session", False, _first_line(problem), "see the message above, and Java's version")
        return
    try:
        spark.sparkContext.setLogLevel("ERROR")
        yield Finding("Spark session", True, f"Spark {spark.version} on {spark.sparkContext.master}")
        yield _tried("Python on executors", lambda: executor_python(spark))
        yield _tried("Arrow transfer", lambda: arrow_transfer(spark))
    finally:
        spark.stop()


def _tried(what: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as problem:  # noqa: BLE001 - a task can fail in any way, and that is the finding
        remedy = f"set PYSPARK_PYTHON to {sys.executable} and see that pyarrow is installed there"
        return Finding(what, False, _first_line(problem), remedy)


def executor_python(spark: SparkSession) -> Finding:
    """Whether tasks run in the same Python environment as the driver."""
    there = spark.sparkContext.parallelize([0], 1).map(_environment).collect()[0]
    here = _environment(0)
    found = f"{there['executable']}, pyarrow {there['pyarrow']}"
    remedy = f"set PYSPARK_PYTHON to {here['executable']}, or leave it out"
    same = there["prefix"] == here["prefix"] and there["pyarrow"] == here["pyarrow"]
    return Finding("Python on executors", same, found, remedy)


def arrow_transfer(spark: SparkSession) -> Finding:
    """Whether rows reach Python and come back as Arrow record batches."""
    rows = 1_000
    total = spark.range(rows).mapInArrow(_same_batches, "id bigint").toArrow()["id"].to_numpy().sum()
    good = int(total) == rows * (rows - 1) // 2
    remedy = "reinstall pyarrow: pip install --force-reinstall 'pyarrow>=18'"
    return Finding("Arrow transfer", good, f"{rows} rows there and back", remedy)


def _environment(_: int) -> dict[str, Any]:
    return {"executable": sys.executable, "prefix": sys.prefix, "pyarrow": metadata.version("pyarrow")}


def _same_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _first_line(problem: BaseException) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]
