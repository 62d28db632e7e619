"""Where a figure was measured: versions and machine, without anything that names the host or its user."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from steelyard.spark.doctor import memory_gib
from steelyard.spark.java import JavaError, java_version

PACKAGES = ("steelyard", "pyspark", "numpy", "pyarrow", "pandas", "numba")


def versions() -> dict[str, str]:
    """Versions of Python, Java and the packages that decide how fast things are; "none" where one is missing.

    >>> sorted(versions())
    ['java', 'numba', 'numpy', 'pandas', 'pyarrow', 'pyspark', 'python', 'steelyard']
    """
    found = {"python": platform.python_version(), "java": _java()}
    for package in PACKAGES:
        found[package] = package_version(package)
    return found


def package_version(package: str) -> str:
    """The installed version of a package, or "none"; the package is not imported."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


def machine() -> dict[str, Any]:
    """Cores that this process may use, memory, processor model and operating system.

    >>> machine()["cores"] >= 1
    True
    """
    return {
        "cores": cores(),
        "memory_gib": memory_gib(),
        "cpu": _cpu_model(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def load() -> float:
    """Processes that ran or waited for a core, on average over the last minute: what else the machine had to do.

    >>> load() >= 0
    True
    """
    return round(os.getloadavg()[0], 2)


def cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _java() -> str:
    try:
        return str(java_version())
    except JavaError:
        return "none"


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        match = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(errors="replace"), re.MULTILINE)
        return match.group(1).strip() if match else "unknown"
    if platform.system() == "Darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        return said.stdout.strip() or "unknown"
    return "unknown"
