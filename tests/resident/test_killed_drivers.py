"""A driver that is killed with `kill -9` again and again, under each protocol: the next one goes on."""

import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from steelyard.resident.snapshot import SnapshotStore
from tests.cluster.killed_flow import ENDLESS, eventually, require_right, rows_read
from tests.cluster.programs import Program, family, kill_nine
from tests.resident.test_killed_processes import PROTOCOLS

pytestmark = pytest.mark.crash
KILLS = 4
MORE = 500
"""Rows that the last driver reads beside those that were read."""


def started(folder, protocol, rows):
    words = [sys.executable, "-m", "tests.resident.killed_driver", str(folder), protocol, str(rows)]
    return Program(words, folder / "log")


def newest(store):
    return store.latest() or 0


def killed_again_and_again(folder, protocol):
    """How many drivers were killed, at drawn moments: before the first commit of theirs, and behind it."""
    draw, store = random.Random(protocol), SnapshotStore(folder / "store")
    for number in range(KILLS):
        with started(folder, protocol, ENDLESS) as driver:
            before = newest(store)
            if number == 0 or draw.random() < 0.7:
                eventually(lambda: newest(store) > before or driver.process.poll() is not None, "a commit")  # noqa: B023
            assert driver.process.poll() is None, driver.said()
            time.sleep(draw.uniform(0, 0.3))
            kill_nine(driver.process.pid)
            driver.process.wait()
            eventually(lambda: not family(driver.process.pid), "the end of its workers")
    rows = rows_read(store) + MORE
    with started(folder, protocol, rows) as driver:
        assert driver.process.wait(120) == 0, driver.said()
    return rows


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """All protocols side by side, two at a time: they mostly wait for processes that start."""
    folders = {protocol: tmp_path_factory.mktemp("killed") for protocol in PROTOCOLS}
    with ThreadPoolExecutor(2) as pool:
        yield {one: (folder, pool.submit(killed_again_and_again, folder, one)) for one, folder in folders.items()}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_next_driver_goes_on_and_gives_every_result_once(jobs, protocol):
    folder, rows = jobs[protocol]
    require_right(folder, rows.result())
