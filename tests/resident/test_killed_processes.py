"""Processes of workers that are killed at drawn moments: every query of the contest gives what it gives undisturbed."""

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq
import pytest

from steelyard.applications import nexmark
from steelyard.applications.reachability import paths, reachability
from steelyard.core.topology import Placement
from steelyard.resident import Flow, Generated, Memory, Parquet, Settings
from steelyard.resident.jobs import Job, Results
from steelyard.resident.launchers import ProcessLauncher
from steelyard.workloads import Constant, Links

WORKERS, KILLS, SECONDS = 2, 10, 4.0
LEAST = 3
"""Kills of each query on average, also on a machine that is slow: over 60 in all."""
PROTOCOLS = [
    "stop_the_world",
    "coordinated",
    "unaligned",
    "uncoordinated",
    "communication_induced",
    "communication_induced?rule=bcs",
    "hybrid",
]
QUERIES = ["q3", "q8", "q12", "reachability"]
PATIENCE = 60.0


def dataflow(query, sink):
    if query == "reachability":
        flow = Flow(query, parallelism=2)
        reader = Generated(Links(nodes=9, seed=5), rows=60, pace=Constant(60 / SECONDS), block_rows=2)
        reachability(flow.source(reader, name="changes")).sink(sink, name=nexmark.SINK)
        return flow.dataflow()
    rate = 2000
    made = nexmark.QUERIES[query]()
    return made.dataflow(int(rate * SECONDS), rate, paced=True, parallelism=2, delay="1 hour", sink=sink)


def answer(query, table):
    return paths(table) if query == "reachability" else Counter(tuple(row.values()) for row in table.to_pylist())


def job(query, sink, settings=None):
    made = dataflow(query, sink)
    return made, Job(made, Placement.spread(made, WORKERS), ProcessLauncher(), settings)


@pytest.fixture(scope="module")
def undisturbed():
    """The answers of all queries."""
    found = {}
    for query in QUERIES:
        made, calm = job(query, Memory())
        found[query] = answer(query, Results(made, calm.run()).table(nexmark.SINK))
        assert found[query]
    return found


def killed(running, thread, draw):
    """Kill workers at drawn moments: one of them while the others still recover from the one before."""
    done, last = 0, -1
    deadline = time.monotonic() + PATIENCE
    while done < KILLS and thread.is_alive() and time.monotonic() < deadline:
        if not any(one.generation > last for one in running.workers.values()):
            time.sleep(0.002)
            continue
        time.sleep(draw.uniform(0.0, 0.02) if done % 2 else draw.uniform(0.1, 0.35))
        there = [one for one in running.workers.values() if one.generation > last]
        if there:
            victim = draw.choice(there)
            last = victim.generation
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim.pid, signal.SIGKILL)
                done += 1
    return done


def disturbed(folder, protocol, query):
    """What the files of a query have whose workers are killed, and how often they were."""
    draw = random.Random(f"{protocol} {query}")
    how = Settings(store=str(folder / query), interval=0.1, heartbeat=0.1, restarts=2 * KILLS, protocol=protocol)
    out = folder / f"{query} out"
    _, running = job(query, Parquet(str(out)), how)
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(running.run()), daemon=True)
    thread.start()
    kills = killed(running, thread, draw)
    thread.join(PATIENCE)
    assert outcome, "it came to its end"
    assert outcome[0].restarts >= kills - 1, "the last may have come when all was done"
    return answer(query, pq.read_table(out)), kills


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_queries_give_the_same_whoever_is_killed(tmp_path, undisturbed, protocol):
    queries = [query for query in QUERIES if (protocol, query) != ("coordinated", "reachability")]  # refused on a cycle
    with ThreadPoolExecutor(len(queries)) as side_by_side:
        found = dict(
            zip(queries, side_by_side.map(lambda one: disturbed(tmp_path, protocol, one), queries), strict=True)
        )
    assert {query: got for query, (got, _) in found.items()} == {query: undisturbed[query] for query in queries}
    assert sum(kills for _, kills in found.values()) >= LEAST * len(queries)
