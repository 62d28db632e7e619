"""Running jobs get other numbers of instances in place, at drawn moments, and give what plain Python gives."""

from functools import partial

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.topology import Placement
from steelyard.resident import Settings
from steelyard.resident.jobs import Job, Results
from steelyard.resident.launchers import ThreadLauncher
from tests.resident.test_rescaling import KINDS, Script, crash, ended, flow_of, right, timed

CASES = 100
PROTOCOLS = ["", "stop_the_world", "coordinated", "unaligned", "uncoordinated", "communication_induced", "hybrid"]
SPLIT = ["windows, keys split", "sessions, keys split"]
"""A forward edge leads to their partials."""


def tables_of(seed, splits, rows):
    rng = np.random.default_rng(seed)
    keys = "abcdefghijklmnop"[: int(rng.integers(1, 17))]

    def row():
        return keys[rng.integers(len(keys))], int(rng.integers(-9, 10)), int(rng.integers(0, 3))

    return tuple(timed([row() for _ in range(rows)]) for _ in range(splits))


def under_way(job):
    """Whether workers have begun to go over."""
    driver = job._driver
    return driver is not None and driver._cuts > 0


drawn_acts = st.lists(
    st.tuples(
        st.integers(1, 30),
        st.dictionaries(st.sampled_from(["kept", "made"]), st.integers(1, 5), min_size=1),
        st.sampled_from(["", "", "waits", "waits", "dies", "dies on the way", "again"]),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=CASES)
@given(
    st.sampled_from(sorted(KINDS)),
    st.integers(0, 1 << 30),
    st.integers(1, 3),
    st.integers(1, 40),
    drawn_acts,
    st.integers(1, 4),
    st.sampled_from(PROTOCOLS),
)
def test_drawn_jobs_that_go_over_in_place_give_what_plain_python_gives(
    tmp_path_factory, kind, seed, splits, rows, acts, batch_rows, protocol
):
    tables, script = tables_of(seed, splits, rows), Script()
    dataflow = flow_of(kind, tables, script, batch_rows=batch_rows)
    store = str(tmp_path_factory.mktemp("in_place"))
    how = Settings(heartbeat=0.05, restarts=20, store=store)
    if protocol:
        how = Settings(store=store, interval=0.01, heartbeat=0.05, restarts=20, protocol=protocol)
    job = Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), how)
    due = 0
    for more, wanted, then in acts:
        due += more
        if kind in SPLIT:
            wanted = {"made": wanted.get("made", 3)}  # noqa: PLW2901
        script.then(due, partial(go_over, job, wanted, then), partial(may_go_on, job, then))
        if then.startswith("dies"):
            script.then(due, crash)
    outcome = ended(job)
    assert right(kind, Results(dataflow, outcome).table("out"), tables)
    assert all(one.in_place for one in outcome.rescalings), [one.why for one in outcome.rescalings]
    assert not outcome.moves


def go_over(job, wanted, then):
    now = {one.name: one.parallelism for one in job._next[0].operators}
    wanted = {name: number if number != now[name] else number % 5 + 1 for name, number in wanted.items()}
    job.rescale(wanted, in_place=True)
    if then == "again":
        job.rescale({name: number % 5 + 1 for name, number in wanted.items()}, in_place=True)


def may_go_on(job, then):
    if then == "waits":
        return job._target is None
    return then != "dies on the way" or under_way(job)
