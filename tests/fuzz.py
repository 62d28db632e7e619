"""New cases for every property test, for as many minutes as asked: `make fuzz MINUTES=10`.

`make test` draws the same cases on every machine and every day, so that red means that a change broke something.
This draws others: rounds over all tests that Hypothesis or a seed draws for, each round from a new seed, in a new
order, until the time is up. Every failure is printed as an example to keep above its test.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import secrets
import sys
import time
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

SEED, UNTIL = "STEELYARD_FUZZ_SEED", "STEELYARD_FUZZ_UNTIL"
"""Variables of the environment, since several processes test: where seeds begin, and when the time is up."""
_SHOWN_LINES = 12
_EXAMPLE = re.compile(r"^(?:Failing test case|Falsifying example): \w+\($")


def first_seed() -> int:
    """Where tests that draw from seeds begin: always at 0, but for `make fuzz`."""
    return int(os.environ.get(SEED, "0"))


def pytest_collection_modifyitems(items):
    """Tests in an order of this round, file by file."""
    order = random.Random(first_seed())
    files = sorted({item.path for item in items})
    place = dict(zip(files, order.sample(range(len(files)), len(files)), strict=True))
    items.sort(key=lambda item: place[item.path])


def pytest_runtest_setup():
    """Begin no test when the time is up."""
    if time.time() > float(os.environ[UNTIL]):
        pytest.skip("the time is up")


@dataclass(eq=False)  # pytest keeps plugins in sets
class Outcome:
    """What the rounds found, for pytest as a plugin of the process that counts."""

    passed: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    """By test: the example that fails."""

    def pytest_runtest_logreport(self, report):
        if report.failed and report.nodeid not in self.failures:
            self.failures[report.nodeid] = example_of(report.longreprtext)
            print(f"\n{report.nodeid}\n{self.failures[report.nodeid]}", flush=True)
        self.passed += report.passed and report.when == "call"

    def pytest_collectreport(self, report):
        if report.failed:
            self.failures[report.nodeid] = report.longreprtext


def example_of(failure: str) -> str:
    """A failure as an example to keep; where nothing was drawn by Hypothesis, the end of what it says.

    >>> print(example_of("...\\nE   Failing test case: test_a(\\nE       x=1,\\nE   )\\nE   Explanation: ..."))
    @example(
        x=1,
    )
    """
    kept: list[str] = []
    for line in failure.splitlines():
        plain = re.sub(r"^(E {3}| *\| )", "", line)  # pytest's mark, or that of one failure of several
        if _EXAMPLE.match(plain):
            kept = ["@example("]
        elif kept:
            kept.append(plain)
            if kept[-1] == ")":
                return "\n".join(kept)
    said = [line for line in failure.splitlines() if line.startswith("E  ")] or failure.splitlines()
    return "\n".join(said[-_SHOWN_LINES:])


def fuzz(minutes: float, where: list[str], processes: int, most: float = math.inf) -> int:
    """Rounds until the time is up, `most` of them at most; gives 1 where a test failed."""
    began = time.time()
    os.environ[UNTIL] = str(began + 60 * minutes)
    outcome, rounds = Outcome(), 0
    while rounds < most and time.time() < float(os.environ[UNTIL]):
        seed = secrets.randbelow(2**31)
        os.environ[SEED] = str(seed)
        rounds += 1
        print(f"round {rounds}: --hypothesis-seed={seed} {SEED}={seed}", flush=True)
        arguments = ["-p", "tests.fuzz", "-p", "no:cacheprovider", "-m", "hypothesis or drawn", "--tb=short"]
        arguments += ["--hypothesis-profile=fuzz", f"--hypothesis-seed={seed}", *where]
        # processes of their own also for one: modules are imported anew, with seeds of this round
        arguments += ["-n", str(processes), "--dist", "loadfile", "--no-loadscope-reorder"]
        code = pytest.main(arguments, plugins=[outcome])
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            print(f"pytest ended with {code!r}")
            return int(code)
    spent = timedelta(seconds=round(time.time() - began))
    for test, example in outcome.failures.items():
        print(f"\n{test}\n{example}")
    print(f"\n{outcome.passed} passed, {len(outcome.failures)} failed in {rounds} rounds and {spent}")
    return 1 if outcome.failures else 0


def main() -> int:
    """The command line."""
    asked = argparse.ArgumentParser(prog="make fuzz", description=__doc__.splitlines()[0])
    asked.add_argument("--minutes", type=float, default=10)
    asked.add_argument("--rounds", type=int, help="at most so many, however much time is left")
    asked.add_argument("--processes", type=int, default=2)
    asked.add_argument("where", nargs="*", default=[], help="files or folders of tests; all by default")
    given = asked.parse_args()
    return fuzz(given.minutes, given.where, given.processes, given.rounds or math.inf)


if __name__ == "__main__":
    sys.exit(main())
