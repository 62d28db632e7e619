"""The prototype's two applications: tweets that are enriched from a database, and the reach of their authors."""

from __future__ import annotations

import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from steelyard.bench.aggregate import WrongAnswerError
from steelyard.bench.osg_completion import Completed, Edge, Work
from steelyard.bench.osg_settings import SOURCE
from steelyard.bench.registry import Run, benchmark
from steelyard.bench.result import Published, Result, Series, Table
from steelyard.core.counts import Ints
from steelyard.workloads.ranks import rank_table

SHUFFLE, OSG = "ASSG", "tracking OSG"
WAYS = {SHUFFLE: "assg", OSG: "tracking_osg?cost_of=item&resync=4&window=16&tolerance=0.5&keep=0.5"}
INSTANCES, QUICK_INSTANCES = (2, 4, 6, 8), (4,)
ROWS, QUICK_ROWS = 2_500, 700
PROVISIONING = 1.05
CALIBRATION_ROWS = 100

ENTITIES = 35_000
ENTITY_EXPONENT = 0.937
"""The most frequent entity then has a share of 0.065, as published."""
TIERS = ((0.1, 0.5, 0.80), (0.5, 3.0, 0.17), (3.0, 23.0, 0.03))
"""Least and most ms of a look-up, and the share of entities: three tiers of answers, about 1 ms on average."""
MENTIONS, LEAST_MS = 6, 1.8
"""Mentions of a tweet at most, and what any tweet takes: 7 ms on average, as published."""

USERS, FOLLOWS, MOST_FOLLOWED = 9_960, 183_005, 734
AUTHOR_EXPONENT = 0.461
"""The most frequent author then has a share of 0.0038, as published."""
DEPTH = 3
COMMUNITY, OUTSIDE = 100, 0.02
"""Users of a circle, and the share of followers from outside of it: else three steps would lead to everyone."""
WAIT_A_USER_MS = 0.07
"""What a visited user takes in a remote graph store, beside the queries here."""


@dataclass(frozen=True)
class Database:
    """A file that instances ask, each with a connection of its own."""

    path: str
    _local: dict[int, sqlite3.Connection] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Database, (self.path,)

    def ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of a query."""
        me = threading.get_ident()
        if me not in self._local:
            self._local[me] = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        return self._local[me].execute(query, values).fetchall()


@dataclass(frozen=True)
class Enriching:
    """Looks every mention of a tweet up; an answer takes as long as its tier's service does."""

    database: Database

    def __call__(self, item: str) -> int:
        """The opinions about all who are mentioned, added up."""
        opinions, waits = 0, LEAST_MS
        for mention in item.split():
            ((opinion, wait),) = self.database.ask("select opinion, wait_ms from entities where id = ?", int(mention))
            opinions, waits = opinions + opinion, waits + wait
        time.sleep(waits / 1000)
        return opinions


@dataclass(frozen=True)
class Reaching:
    """Counts the users that a tweet may reach: followers of its author, theirs, and theirs again."""

    database: Database

    def __call__(self, item: str) -> int:
        """Breadth first, one query a level."""
        seen, level = {int(item)}, {int(item)}
        for _ in range(DEPTH):
            asked = ",".join(map(str, level)) or "-1"
            found = self.database.ask(f"select distinct follower from follows where user in ({asked})")
            level = {user for (user,) in found} - seen
            seen |= level
        time.sleep(len(seen) * WAIT_A_USER_MS / 1000)
        return len(seen) - 1


def mention_stream(folder: Path, rows: int, seed: int) -> tuple[list[str], Enriching]:
    """Tweets as the mentions in them, and the database that they are looked up in."""
    rng = np.random.default_rng([seed, 13])
    tier = rng.choice(len(TIERS), ENTITIES, p=[share for _, _, share in TIERS])
    low, high = (np.array([one[at] for one in TIERS])[tier] for at in (0, 1))
    waits = rng.uniform(low, high)
    path = folder / "entities.db"
    with sqlite3.connect(path) as made:
        made.execute("create table entities (id integer primary key, opinion integer, wait_ms real)")
        opinions = rng.integers(-5, 6, ENTITIES).tolist()
        made.executemany(
            "insert into entities values (?, ?, ?)", zip(range(ENTITIES), opinions, waits.tolist(), strict=True)
        )
    made.close()
    ranks = rank_table(ENTITY_EXPONENT, ENTITIES)
    # who is mentioned first decides who is mentioned beside him, so that one value says what a tweet costs
    counts = 1 + rng.binomial(MENTIONS - 1, 0.7, ENTITIES)
    partners = rng.integers(0, ENTITIES, (ENTITIES, MENTIONS - 1))
    items = [
        " ".join(map(str, [lead, *partners[lead, : counts[lead] - 1]]))
        for lead in ranks.ranks(rng.random(rows)).tolist()
    ]
    return items, Enriching(Database(str(path)))


def follower_graph(seed: int) -> tuple[Ints, Ints]:
    """(user, follower) of each edge: as many users, edges and followers of the most followed one as published."""
    rng = np.random.default_rng([seed, 14])
    weight = 1.0 / np.arange(1, USERS + 1) ** 0.6
    followers = np.minimum(np.round(weight / weight.sum() * FOLLOWS), MOST_FOLLOWED).astype(np.int64)
    followers[0] = MOST_FOLLOWED
    while followers.sum() < FOLLOWS:
        more = rng.choice(np.arange(1, USERS), FOLLOWS - followers.sum())
        np.add.at(followers, more, 1)
        followers[1:] = np.minimum(followers[1:], MOST_FOLLOWED)
    while followers.sum() > FOLLOWS:
        less = np.flatnonzero(followers > 1)[1:][: followers.sum() - FOLLOWS]
        followers[less] -= 1
    user = np.repeat(rng.permutation(USERS), followers)
    near = user // COMMUNITY * COMMUNITY + rng.integers(0, COMMUNITY, FOLLOWS)
    far = rng.random(FOLLOWS) < OUTSIDE
    return user, np.where(far | (near >= USERS), rng.integers(0, USERS, FOLLOWS), near)


def reach_stream(folder: Path, rows: int, seed: int) -> tuple[list[str], Reaching]:
    """Tweets as their authors, and the database of who follows whom."""
    user, follower = follower_graph(seed)
    path = folder / "follows.db"
    with sqlite3.connect(path) as made:
        made.execute("create table follows (user integer, follower integer)")
        made.executemany("insert into follows values (?, ?)", zip(user.tolist(), follower.tolist(), strict=True))
        made.execute("create index of_user on follows (user, follower)")
    made.close()
    rng = np.random.default_rng([seed, 15])
    authors = rng.permutation(USERS)[rank_table(AUTHOR_EXPONENT, USERS).ranks(rng.random(rows))]
    return [str(author) for author in authors.tolist()], Reaching(Database(str(path)))


Found = dict[int, dict[str, Completed]]


def measured(make: Callable[[Path, int, int], tuple[list[str], Work]], run: Run) -> Found:
    """Both ways in turn, for each number of instances, at a little more capacity than is needed."""
    rows = QUICK_ROWS if run.quick else ROWS
    found: Found = {}
    with TemporaryDirectory(prefix="steelyard-osg-") as scratch:
        items, work = make(Path(scratch), rows, run.seed)
        for number, instances in enumerate(
            run.progress.track(QUICK_INSTANCES if run.quick else INSTANCES, "instances")
        ):
            edge = Edge(items, work, instances)
            cost = edge.run(WAYS[OSG], 1e-6, CALIBRATION_ROWS).executing
            ways = list(WAYS)[:: 1 if number % 2 else -1]
            found[instances] = {way: edge.run(WAYS[way], cost / instances * PROVISIONING) for way in ways}
            answers = [one.answers for one in found[instances].values()]
            if not np.array_equal(answers[0], answers[1]):
                raise WrongAnswerError(f"{' and '.join(WAYS)} gave other answers with {instances} instances")
    return found


def result_of(found: Found, rows: int, published: Sequence[str], notes: Sequence[str], figure: str) -> Result:
    """Speed-ups: mean completion time of Storm's shuffle over OSG's."""
    gains = {instances: by_way[SHUFFLE].mean / by_way[OSG].mean for instances, by_way in found.items()}
    return Result(
        parameters={"rows": rows, "provisioning": PROVISIONING, "ways": dict(WAYS)},
        metrics={
            "speed_up_mean": statistics.fmean(gains.values()),
            "speed_up_least": min(gains.values()),
            "speed_up_most": max(gains.values()),
            "messages_a_row": statistics.fmean(by_way[OSG].messages / rows for by_way in found.values()),
        },
        tables=[_table(found)],
        series=[Series(way, list(found), [1000 * by_way[way].mean for by_way in found.values()]) for way in WAYS],
        published=[
            Published(value, f"{SOURCE}, {figure}", metric)
            for metric, value in zip(
                ("speed_up_mean", "speed_up_least", "speed_up_most", "messages_a_row"), published, strict=True
            )
        ],
        notes=[
            *notes,
            "Published: Storm on virtual machines, one for each instance, the paper's data. Here: resident workers in "
            "threads of one process, a stand-in of the data with SQLite, rows due by the clock at "
            f"{100 * PROVISIONING:.0f} % provisioning. Both ways gave the same answers.",
        ],
    )


def _table(found: Mapping[int, Mapping[str, Completed]]) -> Table:
    rows = [
        (instances, way, 1000 * one.mean, 1000 * float(np.percentile(one.seconds, 95)), 1000 * one.executing)
        for instances, by_way in found.items()
        for way, one in by_way.items()
    ]
    return Table("completion times", ("instances", "grouping", "mean ms", "95th ms", "executing ms"), rows)


@benchmark("osg-mention", title="Tweets enriched by look-ups: completion by OSG and ASSG", figure="Figure 13")
def mention(run: Run) -> Result:
    """MENTION: opinions about everyone whom a tweet mentions, from a database whose answers come in three tiers."""
    found = measured(mention_stream, run)
    return result_of(
        found,
        QUICK_ROWS if run.quick else ROWS,
        ("1.27", "1.0", "2.16", "a few hundred for 500,000 tuples"),
        ["A tweet is what it mentions; published are 1.8 to 36 ms a tweet, 7 on average."],
        "Figure 13",
    )


@benchmark("osg-reach", title="Reach of tweets' authors: completion by OSG and ASSG", figure="Figure 14")
def reach(run: Run) -> Result:
    """REACH: how many users are within three steps of a tweet's author in a graph of followers."""
    found = measured(reach_stream, run)
    return result_of(
        found,
        QUICK_ROWS if run.quick else ROWS,
        ("1.5", "1.05", "3.4", "a few thousand for 2,114,269 tuples"),
        ["The graph has as many users and edges as published; published are 0.01 to 70 ms a tweet, 20 on average."],
        "Figure 14",
    )
