"""`make test` draws the same cases every time, `make fuzz` draws others and prints what fails as an example to keep."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FUZZ = ["tests.fuzz", "--rounds", "1", "--processes", "1"]
PROPERTY = """
from pathlib import Path
import pytest
from hypothesis import given, settings, strategies as st
from tests.fuzz import first_seed

SEEN = Path(__file__).with_name("seen.txt")

@settings(max_examples=20)
@given(x=st.integers(0, 10**9))
def test_drawn_by_hypothesis(x):
    with SEEN.open("a") as seen:
        seen.write(f"{x}\\n")

@pytest.mark.drawn
def test_drawn_from_a_seed():
    with SEEN.open("a") as seen:
        seen.write(f"seed {first_seed()}\\n")

@given(x=st.integers(0, 10**9))
def test_that_fails(x):
    assert x < FAILS_FROM

def test_without_draws():
    assert FAILS_FROM > 10**9, "not a property test: make fuzz leaves it out"
"""


@pytest.fixture
def folder(tmp_path):
    """Tests in a folder of their own, with our settings."""
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    drawn: from seeds\n")
    return tmp_path


def run(folder, *command, fails_from=10**12):
    (folder / "test_drawn.py").write_text(PROPERTY.replace("FAILS_FROM", str(fails_from)))
    return subprocess.run(
        [sys.executable, "-m", *command, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_test_run_draws_the_same_cases_each_time_and_fuzz_others(folder):
    seen, drawn = folder / "seen.txt", []
    for command in (["pytest"], ["pytest"], FUZZ):
        ended = run(folder, *command)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        drawn.append(seen.read_text())
        seen.unlink()
    first, second, other = drawn
    assert first == second
    assert "seed 0\n" in first
    assert "seed 0\n" not in other
    assert first != other


def test_fuzz_prints_a_failure_as_an_example_to_keep(folder):
    ended = run(folder, *FUZZ, fails_from=70)
    assert ended.returncode == 1
    assert "@example(\n    x=70,\n)" in ended.stdout
    assert "2 passed, 1 failed in 1 rounds" in ended.stdout
