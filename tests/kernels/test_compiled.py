"""What is compiled says so once, before it starts, and is kept for later processes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import steelyard
from steelyard.kernels.compiled import PARTS

PACKAGE = Path(steelyard.__file__).parent
FLOWS = """
from steelyard.sim import Exactly, FluidSimulation, Operator, Scenario, Source
flows = FluidSimulation(Scenario.chain(Source("log", rate=100), Operator("map", Exactly(0.02))))
flows.advance(1.0)
flows.advance(1.0)
print(flows.steps)
"""
SAID = "compiling the simulator of flows: about 3 s, once for an installation"
COMPILING = re.compile(r"^@(njit|inlined|loop)\b", re.MULTILINE)


def run(folder: Path, program: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "HOME": str(cache), "XDG_CACHE_HOME": str(cache)}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def copied(tmp_path):
    """The package with nothing compiled."""
    shutil.copytree(PACKAGE, tmp_path / "src" / "steelyard", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "src"


def cannot_be_written(folder: Path) -> None:
    # permissions would not keep root out; a file where the folder should be does
    (folder / "steelyard" / "kernels" / "__pycache__").write_text("")


@pytest.mark.parametrize("writable", [True, False])
def test_a_part_is_announced_once_and_kept_for_the_next_process(copied, tmp_path, writable):
    cache = tmp_path / "cache"
    cache.mkdir()
    if not writable:
        cannot_be_written(copied)
    first = run(copied, FLOWS, cache)
    assert first.stderr.splitlines() == [SAID]
    kept = list((copied if writable else cache).rglob("*run_steps*.nbc"))
    assert len(kept) == 1
    again = run(copied, FLOWS, cache)
    assert (again.stdout, again.stderr) == (first.stdout, "")


def test_where_nothing_can_be_kept_it_works_and_says_so(copied, tmp_path):
    cannot_be_written(copied)
    (tmp_path / "cache").write_text("")
    done = run(copied, "import steelyard.kernels.mixing as m; print(m.home(7, 3))", tmp_path / "cache")
    assert done.stdout == "1\n"
    assert len(done.stderr.splitlines()) == 1
    assert "set NUMBA_CACHE_DIR" in done.stderr


def test_every_compiled_kernel_is_made_in_one_place_and_has_a_name():
    kernels = {path.stem: path.read_text() for path in (PACKAGE / "kernels").glob("*.py") if path.stem != "compiled"}
    assert sorted(name for name, text in kernels.items() if COMPILING.search(text)) == sorted(PARTS)
    for path in PACKAGE.rglob("*.py"):
        if path.stem != "compiled":
            assert "import njit" not in path.read_text().replace("from steelyard.kernels.compiled import njit", "")
