"""Kafka for Spark: the connector's jars by their Maven coordinates, and results as Kafka records.

PySpark ships without Kafka's connector. `kafka_jars` gets it, once, with what is on the machine already:
the Ivy resolver among Spark's own jars, run by the Java that runs Spark. Where Ivy cannot reach a
repository and `mvn` is installed, Maven is tried with the user's own settings (mirrors, proxies).
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

import pyspark
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from steelyard.core.errors import OptionError, SteelyardError
from steelyard.spark.java import java_executable
from steelyard.spark.rows import quoted

BATCH_HEADER = "steelyard-batch"
DOWNLOAD_SECONDS = 900

# What the tests ran with on Spark 4.3.0 where the repository did not have that release's own connector: the
# newest connector that it had, and the newest full release of the token provider that the connector needs.
STAND_IN_PACKAGES = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
)

_logger = logging.getLogger(__name__)


class ArtifactError(SteelyardError):
    """Jars that could not be had: the repository has them not, or was not reached."""


class Coordinate(NamedTuple):
    """One artifact's place in a Maven repository."""

    group: str
    artifact: str
    version: str

    @classmethod
    def parse(cls, text: str) -> Coordinate:
        """Read `group:artifact:version`.

        Examples
        --------
        >>> Coordinate.parse("org.slf4j:slf4j-api:2.0.17").artifact
        'slf4j-api'
        """
        parts = text.split(":")
        if len(parts) != 3 or not all(re.fullmatch(r"[\w.\-]+", part) for part in parts):
            raise OptionError(f"package {text!r} cannot be read: write it as group:artifact:version")
        return cls(*parts)


def spark_jars_directory() -> Path:
    """The directory of the jars that Spark starts with: SPARK_HOME's, or the installed pyspark's."""
    home = os.environ.get("SPARK_HOME")
    return (Path(home) if home else Path(pyspark.__file__).parent) / "jars"


def kafka_packages() -> list[str]:
    """Coordinates of the Kafka connector of this very Spark and Scala.

    Examples
    --------
    >>> kafka_packages()
    ['org.apache.spark:spark-sql-kafka-0-10_2.13:4...']
    """
    directory = spark_jars_directory()
    for jar in directory.glob("spark-core_*.jar"):
        match = re.fullmatch(r"spark-core_([\d.]+)-(.+)\.jar", jar.name)
        if match is not None:
            scala, version = match.groups()
            return [f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{version}"]
    raise ArtifactError(f"no spark-core jar in {directory}: reinstall pyspark, or correct SPARK_HOME")


def kafka_jars(packages: Sequence[str] | None = None) -> list[Path]:
    """The jars to name in `spark.jars` so that `format("kafka")` works; downloaded on first use.

    Parameters
    ----------
    packages
        Coordinates to use in place of `kafka_packages()`, for example `STAND_IN_PACKAGES`. Another
        release than Spark's own is the caller's choice, never made for him.
    """
    wanted = list(packages) if packages is not None else kafka_packages()
    try:
        return resolve(wanted, exclude=_modules_of(spark_jars_directory()))
    except ArtifactError as error:
        if packages is not None:
            raise
        raise ArtifactError(
            f"{error}\nIf your repository lacks this release's connector, name another one yourself: "
            f"sy.session(kafka=steelyard.spark.kafka.STAND_IN_PACKAGES) takes {' and '.join(STAND_IN_PACKAGES)}"
        ) from error


def resolve(coordinates: Sequence[str], exclude: Iterable[str] = ()) -> list[Path]:
    """The jars of `coordinates` and of all that they need at run time; downloaded once, then cached.

    A version that is named here wins over one that a dependency asks for. The cache is
    `steelyard/jars` in XDG_CACHE_HOME (by default `~/.cache`); it can be deleted at any time.

    Parameters
    ----------
    coordinates
        `group:artifact:version`, each.
    exclude
        Artifact names that are left out, with what only they need.

    Raises
    ------
    ArtifactError
        With the artifacts that were not found and what to do.
    """
    wanted = [Coordinate.parse(text) for text in coordinates]
    if not wanted:
        raise OptionError("no package was named: give at least one group:artifact:version")
    left_out = sorted(set(exclude))
    target = jar_cache() / _cache_name(wanted, left_out)
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        _logger.info("downloading %s to %s", ", ".join(coordinates), target)
        # A download is complete or absent: it happens aside and is then renamed into its place.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".download-") as aside:
            _download(wanted, left_out, Path(aside))
            try:
                (Path(aside) / "jars").rename(target)
            except OSError:
                if not target.is_dir():  # otherwise another process was first, with the same jars
                    raise
    return sorted(target.glob("*.jar"))


def as_records(result: DataFrame, keys: Sequence[str], batch_id: int) -> DataFrame:
    """`result` as what Spark's Kafka sink takes: the columns `key`, `value` and `headers`.

    The value is the whole row as JSON, nulls included, and the key is the key columns as JSON, so that one
    group stays in one partition of the topic; without key columns it is null. The header `steelyard-batch` is the
    batch's id in decimal digits: a batch that is written again after a crash carries the same id, so a consumer can
    drop what it has had.
    """
    for column in keys:
        if column not in result.columns:
            raise OptionError.unknown("key column", column, result.columns)
    # Spark's JSON leaves nulls out by default; a consumer should see the same fields in every record.
    whole = {"ignoreNullFields": "false"}
    header = sf.struct(sf.lit(BATCH_HEADER).alias("key"), sf.lit(str(batch_id)).cast("binary").alias("value"))
    row, key = ([quoted(name) for name in names] for names in (result.columns, keys))
    return result.select(
        (sf.to_json(sf.struct(*key), whole) if key else sf.lit(None).cast("string")).alias("key"),
        sf.to_json(sf.struct(*row), whole).alias("value"),
        sf.array(header).alias("headers"),
    )


def _modules_of(directory: Path) -> list[str]:
    """Artifact names of the jars in `directory`: `zstd-jni-1.5.7-7.jar` is `zstd-jni`."""
    names = (re.match(r"(.+?)-\d", jar.name) for jar in directory.glob("*.jar"))
    return sorted({name.group(1) for name in names if name is not None})


def jar_cache() -> Path:
    """Where downloaded jars are kept; can be deleted at any time."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules say that a relative path is to be ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "steelyard" / "jars"


def _cache_name(wanted: Sequence[Coordinate], exclude: Sequence[str]) -> str:
    digest = hashlib.sha256(repr((tuple(wanted), tuple(exclude))).encode()).hexdigest()
    return f"{wanted[0].artifact}-{wanted[0].version}-{digest[:12]}"


def _download(wanted: Sequence[Coordinate], exclude: Sequence[str], aside: Path) -> None:
    """Fill `aside/jars` with Ivy, and with Maven where Ivy reached no repository."""
    said = _run_ivy(wanted, exclude, aside)
    if said is None:
        return
    missing = dict.fromkeys(re.findall(r":: (\S+)#(\S+);(\S+): not found", said))
    names = ", ".join(map(":".join, missing or wanted))
    if "Server access error" not in said:
        reason = "not in the Maven repository" if missing else f"Ivy failed:\n{said[-2000:]}\nfor"
        raise ArtifactError(f"{reason}: {names}")
    maven = shutil.which("mvn")
    if maven is not None:
        _logger.warning("Ivy reached no repository; trying Maven for %s", names)
        if _run_maven(maven, wanted, exclude, aside):
            return
    raise ArtifactError(
        f"no Maven repository was reached for {names}: check the network, set HTTPS_PROXY to your proxy, "
        "or set DEFAULT_ARTIFACT_REPOSITORY to the address of your mirror"
    )


def _run_ivy(wanted: Sequence[Coordinate], exclude: Sequence[str], aside: Path) -> str | None:
    """Download with Ivy to `aside/jars`; None when all went well, otherwise what Ivy said."""
    ivy = next(spark_jars_directory().glob("ivy-*.jar"), None)
    if ivy is None:
        raise ArtifactError(f"no ivy jar in {spark_jars_directory()}: reinstall pyspark, or correct SPARK_HOME")
    description = aside / "ivy.xml"
    description.write_text(_ivy_description(wanted, exclude), encoding="utf-8")
    command = [
        str(java_executable()),
        f"-Divy.default.ivy.user.dir={aside / 'ivy'}",
        *_proxy_properties(),
        *("-cp", str(ivy), "org.apache.ivy.Main"),
        *("-cache", str(aside / "ivy" / "cache"), "-ivy", str(description)),
        *("-confs", "default", "-types", "jar", "bundle"),
        *("-retrieve", f"{aside}/jars/[organisation]_[artifact]-[revision](-[classifier]).[ext]"),
    ]
    mirror = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")  # the variable that Spark's --packages reads too
    if mirror:
        settings = aside / "ivysettings.xml"
        settings.write_text(
            '<ivysettings><settings defaultResolver="mirror"/><resolvers>'
            f'<ibiblio name="mirror" m2compatible="true" root={quoteattr(mirror)}/>'
            "</resolvers></ivysettings>",
            encoding="utf-8",
        )
        command += ["-settings", str(settings)]
    done = _run(command, aside)
    return None if done.returncode == 0 else done.stdout + done.stderr


def _run_maven(maven: str, wanted: Sequence[Coordinate], exclude: Sequence[str], aside: Path) -> bool:
    """Download with Maven to `aside/jars`; whether it went well."""
    (aside / "pom.xml").write_text(_maven_description(wanted, exclude), encoding="utf-8")
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={aside / 'jars'}"]
    done = _run([maven, "--batch-mode", "--quiet", "-Dmdep.prependGroupId=true", *goal], aside)
    if done.returncode != 0:
        _logger.warning("Maven failed: %s", done.stdout[-2000:])
    return done.returncode == 0


def _run(command: Sequence[str], directory: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ArtifactError(f"the download did not end in {DOWNLOAD_SECONDS} seconds: try again") from error


def _ivy_description(wanted: Sequence[Coordinate], exclude: Sequence[str]) -> str:
    lines = [
        f'<dependency org="{at.group}" name="{at.artifact}" rev="{at.version}" conf="default->default"/>'
        for at in wanted
    ]
    lines += [f'<exclude module="{name}"/>' for name in exclude]
    lines += [f'<override org="{at.group}" module="{at.artifact}" rev="{at.version}"/>' for at in wanted]
    return (
        '<ivy-module version="2.0"><info organisation="steelyard" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _maven_description(wanted: Sequence[Coordinate], exclude: Sequence[str]) -> str:
    leave = "".join(f"<exclusion><groupId>*</groupId><artifactId>{name}</artifactId></exclusion>" for name in exclude)
    lines = "".join(
        f"<dependency><groupId>{at.group}</groupId><artifactId>{at.artifact}</artifactId>"
        f"<version>{at.version}</version><exclusions>{leave}</exclusions></dependency>"
        for at in wanted
    )
    # Managed as well, or Maven would first read the descriptor of the version that a dependency asks for.
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>steelyard</groupId><artifactId>jars</artifactId>"
        "<version>1</version><packaging>pom</packaging>"
        f"<dependencyManagement><dependencies>{lines}</dependencies></dependencyManagement>"
        f"<dependencies>{lines}</dependencies></project>"
    )


def _proxy_properties() -> list[str]:
    """Java's proxy settings from HTTPS_PROXY, which Java does not read by itself."""
    address = os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy") or ""
    proxy = urlsplit(address if "//" in address else f"//{address}")
    if not proxy.hostname:
        return []
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 443}"]
