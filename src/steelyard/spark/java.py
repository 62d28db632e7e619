"""Find a Java that Spark 4 can run on, or say in one sentence what to do.

Only the standard library is used: the Makefile runs this file before anything is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST_JAVA = 17
REMEDY = (
    f"install a JDK {OLDEST_JAVA} or newer (Debian: apt-get install openjdk-17-jdk-headless; "
    "macOS: brew install openjdk@17) or point JAVA_HOME to one"
)


class JavaError(RuntimeError):
    """No usable Java was found; the message says what to do."""


def java_executable() -> Path:
    """The `java` that Spark's launcher would use: JAVA_HOME first, then PATH."""
    home = os.environ.get("JAVA_HOME")
    if home:
        candidate = Path(home) / "bin" / "java"
        if not candidate.exists():
            raise JavaError(f"JAVA_HOME is {home}, which has no bin/java: {REMEDY}.")
        return candidate
    found = shutil.which("java")
    if found is None:
        raise JavaError(f"Spark needs Java and none was found on PATH: {REMEDY}.")
    return Path(found)


def java_version(executable: Path | None = None) -> int:
    """The major version of `executable`, for example 17 (and 8 for the old form 1.8)."""
    command = executable or java_executable()
    try:
        said = subprocess.run([str(command), "-version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaError(f"{command} does not run ({error}): {REMEDY}.") from error
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if match is None:
        raise JavaError(f"{command} did not tell its version: {REMEDY}.")
    return int(match.group(1))


def require_java() -> int:
    """The major version of a Java that is new enough; otherwise a JavaError with the remedy."""
    version = java_version()
    if version < OLDEST_JAVA:
        raise JavaError(f"Spark needs Java {OLDEST_JAVA} or newer and found Java {version}: {REMEDY}.")
    return version


if __name__ == "__main__":
    try:
        require_java()
    except JavaError as problem:
        sys.exit(str(problem))
