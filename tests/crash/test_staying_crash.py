"""Drivers of workers that stay are killed with `kill -9`, and what their queries give in the end is the same."""

from __future__ import annotations

import random
import signal
from itertools import count

import pyarrow.parquet as pq
import pytest

from tests.crash.driver import COMMITTED, COMMITTING, WRITING
from tests.crash.staying_driver import FILES, LAST, start, write_file
from tests.spark.cases import same

pytestmark = [pytest.mark.spark, pytest.mark.crash]
MODULE = "tests.crash.staying_driver"
ENGINES = ["groups", "resident"]
KILLS, LONGEST_LIFE = 3, 8
LONGEST_PAUSE = {WRITING: 0.5, COMMITTING: 0.05, COMMITTED: 0.5}


def results(folder):
    table = pq.read_table(folder / "out")
    return table.drop_columns([name for name in ("batch_id", "epoch_id") if name in table.column_names]).to_pylist()


def undisturbed(spark, folder, source):
    """What a query gives that finds all files and ends with them."""
    folder.mkdir(parents=True)
    (folder / LAST).touch()
    start(spark, folder, source).await_termination()


def killed(folder, source, new_driver, draw):
    """Drivers one after the other, and each but the last is killed. A file comes with each commit: none runs out."""
    source.mkdir()
    numbers = count()

    def feed(said=COMMITTED):
        if said == COMMITTED:
            write_file(source, next(numbers))

    following = new_driver(MODULE, folder, source)
    for _ in range(KILLS):
        driver, following = following, new_driver(MODULE, folder, source)
        feed()
        driver.live(draw.randint(2, LONGEST_LIFE), draw.choice([0.0, draw.random()]), LONGEST_PAUSE, feed)
        assert driver.process.returncode == -signal.SIGKILL, driver.log.read_text()[-3000:]
    for number in range(next(numbers), FILES):
        write_file(source, number)
    (folder / LAST).touch()
    following.finish()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_driver_of_workers_that_stay_is_killed_and_every_result_comes_once(spark, tmp_path, new_driver, engine):
    calm, disturbed, source = tmp_path / "calm" / engine, tmp_path / engine, tmp_path / "in"
    killed(disturbed, source, new_driver, random.Random(engine))
    undisturbed(spark, calm, source)
    assert results(calm)
    same(results(disturbed), results(calm), ["window_start", "key"])
    if engine == "resident":
        letters = [pq.read_table(at / "letters").num_rows for at in (calm, disturbed)]
        assert letters[0] == letters[1] > 0
