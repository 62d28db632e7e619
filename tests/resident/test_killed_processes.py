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
RUNS = 5
"""At most: on a slow machine a query may end before it has had all of its kills, and runs again."""
PROTOCOLS = [
    "stop_the_world",
    "coordinated",
    "unaligned",
    "uncoordinated",
    "communication_induced",
    "communication_induced?rule=bcs",
    "hybrid",
]
NEXMARK = {
    "q1": nexmark.Q1(),
    "q3": nexmark.Q3(),
    "q5": nexmark.Q5("2 seconds", "1 second"),
    "q8": nexmark.Q8(),
    "q11": nexmark.Q11("100 milliseconds"),
    "q12": nexmark.Q12(),
}
"""Sliding windows and sessions are short, so that many are open and over within the rows."""
QUERIES = [*NEXMARK, "reachability"]
PATIENCE = 60.0


def dataflow(query, sink, paced=True):
    if query == "reachability":
        flow = Flow(query, parallelism=2)
        reader = Generated(
            Links(nodes=9, seed=5), rows=60, pace=Constant(60 / SECONDS) if paced else None, block_rows=2
        )
        reachability(flow.source(reader, name="changes")).sink(sink, name=nexmark.SINK)
        return flow.dataflow()
    rate = 2000
    return NEXMARK[query].dataflow(int(rate * SECONDS), rate, paced=paced, parallelism=2, delay="1 hour", sink=sink)


def answer(query, table):
    return paths(table) if query == "reachability" else Counter(tuple(row.values()) for row in table.to_pylist())


def job(query, sink, settings=None, paced=True):
    made = dataflow(query, sink, paced)
    return made, Job(made, Placement.spread(made, WORKERS), ProcessLauncher(), settings)


@pytest.fixture(scope="module")
def undisturbed():
    """The answers of all queries, over the same rows as fast as they are read."""
    found = {}
    for query in QUERIES:
        made, calm = job(query, Memory(), paced=False)
        found[query] = answer(query, Results(made, calm.run()).table(nexmark.SINK))
        assert found[query]
    return found


def killed(running, thread, draw, several):
    """Kill workers at drawn moments: one of them while the others still recover from the one before."""
    done, last = 0, -1
    deadline = time.monotonic() + PATIENCE
    while done < several and thread.is_alive() and time.monotonic() < deadline:
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
    """What the files of a query have whose workers are killed, run by run, and how often they were in all."""
    draw, answers, kills = random.Random(f"{protocol} {query}"), [], 0
    while kills < KILLS and len(answers) < RUNS:
        store, out = (folder / f"{query} {len(answers)} {what}" for what in ("store", "out"))
        how = Settings(store=str(store), interval=0.1, heartbeat=0.1, restarts=2 * KILLS, protocol=protocol)
        _, running = job(query, Parquet(str(out)), how)
        outcome = []
        thread = threading.Thread(target=lambda running=running, to=outcome: to.append(running.run()), daemon=True)
        thread.start()
        done = killed(running, thread, draw, KILLS - kills)
        thread.join(PATIENCE)
        assert outcome, "it came to its end"
        assert outcome[0].restarts >= done - 1, "the last may have come when all was done"
        answers.append(answer(query, pq.read_table(out)))
        kills += done
    return answers, kills


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_queries_give_the_same_whoever_is_killed(tmp_path, undisturbed, protocol):
    queries = [query for query in QUERIES if (protocol, query) != ("coordinated", "reachability")]  # refused on a cycle
    with ThreadPoolExecutor(len(queries)) as side_by_side:
        found = dict(
            zip(queries, side_by_side.map(lambda one: disturbed(tmp_path, protocol, one), queries), strict=True)
        )
    for query, (answers, kills) in found.items():
        assert answers == [undisturbed[query]] * len(answers), query
        assert kills >= KILLS, query
