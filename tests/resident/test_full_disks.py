"""A disk that is full when any of a job's files is written: the error says so, and what is on the disk goes on."""

import errno
import os
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steelyard.core import SteelyardError
from steelyard.resident import Parquet, run
from tests.resident.test_protocols import OF_A_KIND, answers, dataflow, kept

MANY = [("abc"[i % 3], i % 7, i * 1000) for i in range(150)]
FIRST, STEP, LAST = 1, 27, 60
"""Which files the disk has no room for, each in a job of its own."""


class Disk:
    """Has no room for the file of a number, and for those that follow."""

    def __init__(self, first, several):
        self._full, self._several = first, several
        self._fsync, self.written, self.refused = os.fsync, 0, 0

    def fsync(self, file):
        self.written += 1
        if self._full <= self.written < self._full + self._several:
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        self._fsync(file)


def found(folder):
    files = list((folder / "out").glob("*.parquet"))
    return answers("windows", pa.concat_tables(map(pq.read_table, files))) if files else Counter()


@pytest.fixture(scope="module")
def calm():
    return answers("windows", run(dataflow("windows", MANY, [])).table("out"))


@pytest.mark.parametrize("several", [1, 10**6], ids=["for a moment", "for good"])
@pytest.mark.parametrize("protocol", [*OF_A_KIND, "stop_the_world"])
def test_a_full_disk_is_told_and_what_is_on_it_goes_on(tmp_path, monkeypatch, calm, protocol, several):
    told = 0
    for number in range(FIRST, LAST, STEP):
        folder, disk = tmp_path / str(number), Disk(number, several)
        flow = dataflow("windows", MANY, [], sink=Parquet(str(folder / "out")))
        with monkeypatch.context() as patch:
            patch.setattr("steelyard.core.durable.os.fsync", disk.fsync)
            said = failure(flow, kept(folder / "store", restarts=1, protocol=protocol))
        assert "No space left on device" in said or (not said and (several == 1 or not disk.refused))
        told += bool(said)
        assert not found(folder) - calm, "nothing is seen that was not committed"
        run(flow, settings=kept(folder / "store", protocol=protocol))
        assert found(folder) == calm, number
    assert told or several == 1


def failure(flow, how):
    """Why a job failed; nothing where it came to its end."""
    try:
        run(flow, settings=how)
    except (OSError, SteelyardError) as error:
        return str(error)
    return ""
