"""What the benchmark of rescaling makes of what it saw."""

import numpy as np

from steelyard.bench.engine.rescale import IN_PLACE, NOTE, RESTART, Turn, longest_gaps, result_of
from steelyard.core.key_groups import DEFAULT_GROUPS
from steelyard.resident.rescaling import Rescaling


def notes(*some):
    """(moment, group) of each."""
    made = np.zeros(len(some), NOTE)
    for note, (at, group) in zip(made, some, strict=True):
        note["at"], note["rows"][group] = at, 1
    return made


def test_the_longest_time_without_rows_is_between_two_of_a_group_or_at_an_end():
    some = notes((1.0, 5), (2.0, 5), (2.5, 6), (4.5, 5))
    found = longest_gaps(some, 0.0, 6.0, np.arange(DEFAULT_GROUPS))
    assert found[5] == 2.5
    assert found[6] == 3.5
    assert found[7] == 6.0
    assert longest_gaps(some, 0.0, 6.0, np.zeros(DEFAULT_GROUPS))[7] == 2.0


def turn(way, pause, size):
    moved = np.arange(DEFAULT_GROUPS) < 40
    pauses = np.where(moved, 10.0, pause)
    how = Rescaling({"count": 2}, {"count": 3}, "" if way == IN_PLACE else "why", 0.1, 40, 2, size)
    return Turn(way, how, 1.0, 2.0, 160, pauses, np.full(DEFAULT_GROUPS, 0.01), moved, 90, 100.0)


def test_pauses_of_groups_that_stay_are_compared_and_bytes_are_held_against_the_state():
    found = [turn(IN_PLACE, 0.1, 160), turn(RESTART, 2.0, 0)]
    made = result_of(found, keys=10)
    assert made.metrics["unmoved_pause_vs_restart"] == 0.05
    assert made.metrics["throughput_during"] == 0.9
    assert made.metrics["bytes_beside_state"] == 0.0
    assert result_of([turn(IN_PLACE, 0.1, 176), found[1]], keys=10).metrics["bytes_beside_state"] == 0.1
