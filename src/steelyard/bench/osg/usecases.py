"""The prototype's two applications: tweets that are enriched from a database, and the reach of their authors."""

from __future__ import annotations

import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from steelyard.bench import Claim, Published, Result, Run, Series, Table, WrongAnswerError, charts, experiment
from steelyard.bench.osg.completion import Completed, Edge
from steelyard.bench.osg.edge import ShuffleEdge, ShuffleRun
from steelyard.bench.osg.settings import SOURCE
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.workloads.ranks import rank_table

SHUFFLE, OSG, TRACKING = "ASSG", "OSG", "tracking OSG"
SIMULATED = {SHUFFLE: "assg", OSG: "osg", TRACKING: "tracking_osg"}
WITHOUT_RESYNC = "osg?resync=0"
"""OSG as the paper describes it: the periodic replies are of the authors' program."""
LIVE = {SHUFFLE: "assg", TRACKING: "tracking_osg?cost_of=item&resync=4&window=16&tolerance=0.5&keep=0.5"}
INSTANCES = tuple(range(2, 11))
QUICK_TUPLES = 50_000
LIVE_INSTANCES, LIVE_ROWS, QUICK_LIVE_ROWS = 4, 2_500, 400
PROVISIONING = 1.05
CALIBRATION_ROWS = 100

ENTITIES = 35_000
ENTITY_EXPONENT = 0.937
"""The most frequent entity then has a share of 0.065, as published."""
TIERS = ((0.1, 0.5, 0.80), (0.5, 3.0, 0.17), (3.0, 23.0, 0.03))
"""Least and most ms of a look-up, and the share of entities: three tiers of answers, about 1 ms on average."""
TWEETS = 500_000
MENTIONS, LEAST_MS = 6, 1.8
"""Mentions of a tweet at most, and what any tweet takes: 7 ms on average, as published."""

USERS, FOLLOWS, MOST_FOLLOWED = 9_960, 183_005, 734
AUTHOR_EXPONENT = 0.461
"""The most frequent author then has a share of 0.0038, as published."""
POSTS = 2_114_269
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

    def look(self, item: str) -> tuple[int, float]:
        """The opinions about all who are mentioned, added up; and the ms to wait for them."""
        opinions, waits = 0, LEAST_MS
        for mention in item.split():
            ((opinion, wait),) = self.database.ask("select opinion, wait_ms from entities where id = ?", int(mention))
            opinions, waits = opinions + opinion, waits + wait
        return opinions, waits

    def __call__(self, item: str) -> int:
        """The opinions, after their time."""
        return _waited(self.look(item))


@dataclass(frozen=True)
class Reaching:
    """Counts the users that a tweet may reach: followers of its author, theirs, and theirs again."""

    database: Database

    def look(self, item: str) -> tuple[int, float]:
        """Breadth first, one query a level; how many, and the ms to wait for them."""
        seen, level = {int(item)}, {int(item)}
        for _ in range(DEPTH):
            asked = ",".join(map(str, level)) or "-1"
            found = self.database.ask(f"select distinct follower from follows where user in ({asked})")
            level = {user for (user,) in found} - seen
            seen |= level
        return len(seen) - 1, len(seen) * WAIT_A_USER_MS

    def __call__(self, item: str) -> int:
        """How many, after their time."""
        return _waited(self.look(item))


def _waited(found: tuple[int, float]) -> int:
    time.sleep(found[1] / 1000)
    return found[0]


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


Lookup = Enriching | Reaching
Means = dict[int, dict[str, float]]
Messages = dict[int, int]
"""By instances."""


@dataclass(frozen=True)
class Said:
    """What the paper prints of one application."""

    mean: float
    least: float
    most: float
    """Speed-ups over Storm's shuffle."""
    words: str
    below: int
    """How many additional messages, and the number that this is below."""
    falls: str
    """What it says of OSG with more instances."""
    times: tuple[float, float, float]
    """Least, mean and most ms of a tuple."""

    @property
    def published(self) -> dict[str, float | str]:
        """By metric."""
        speedups = {"speed_up_mean": self.mean, "speed_up_least": self.least, "speed_up_most": self.most}
        ms = dict(zip(("least_ms", "mean_ms", "most_ms"), self.times, strict=True))
        return {**speedups, **ms, "messages": self.words, "messages_without_resync": self.words}


MENTION = Said(1.27, 1.0, 2.16, "a few hundred", 1_000, "always decreases", (1.8, 7, 36))
REACH = Said(1.5, 1.05, 3.4, "a few thousand", 10_000, "decreases", (0.01, 20, 70))


@dataclass(frozen=True)
class UseCase:
    """What both parts of an experiment gave."""

    means: Means
    """By instances and grouping: mean completion in seconds, simulated over the published number of tuples."""
    messages: Messages
    """Matrices and replies of OSG; requests travel with tuples."""
    messages_without_resync: Messages
    """The same without periodic replies."""
    costs: Floats
    """float64[tuples]: seconds."""
    live: dict[str, Completed]
    """The first rows on resident workers."""


def costs_of(items: Sequence[str], work: Lookup) -> Floats:
    """float64[items]: seconds each takes, with queries that are made and measured once for each value."""
    known: dict[str, float] = {}
    for item in dict.fromkeys(items):
        begun = time.perf_counter()
        _, wait = work.look(item)
        known[item] = time.perf_counter() - begun + wait / 1000
    return np.array([known[item] for item in items])


def measured(make: Callable[[Path, int, int], tuple[list[str], Lookup]], tuples: int, run: Run) -> UseCase:
    """Costs on the database, all tuples in simulated time with each number of instances, a few on workers."""
    with TemporaryDirectory(prefix="steelyard-osg-") as scratch:
        items, work = make(Path(scratch), tuples, run.seed)
        costs = costs_of(items, work)
        numbers = np.unique(np.array(items), return_inverse=True)[1].astype(np.int64)
        means: Means = {}
        messages, few = {}, {}
        for instances in run.progress.track(INSTANCES, "instances"):
            edge = ShuffleEdge(numbers, costs, instances, PROVISIONING)
            runs = {way: edge.run(name) for way, name in SIMULATED.items()}
            means[instances] = {way: one.mean_completion for way, one in runs.items()}
            messages[instances] = _extra(runs[OSG])
            few[instances] = _extra(edge.run(WITHOUT_RESYNC))
        live = _live(items[: run.pick(LIVE_ROWS, QUICK_LIVE_ROWS)], work)
    return UseCase(means, messages, few, costs, live)


def _extra(run: ShuffleRun) -> int:
    """Messages that are sent beside the tuples."""
    return run.traffic["matrices"] + run.traffic["replies"]


def _live(items: Sequence[str], work: Lookup) -> dict[str, Completed]:
    edge = Edge(items, work, LIVE_INSTANCES)
    cost = edge.run(LIVE[TRACKING], 1e-6, CALIBRATION_ROWS).executing
    apart = cost / LIVE_INSTANCES * PROVISIONING
    for name in LIVE.values():  # a new installation compiles meanwhile, and rows would wait
        edge.run(name, apart, QUICK_LIVE_ROWS)
    live = {way: edge.run(name, apart) for way, name in LIVE.items()}
    if not np.array_equal(live[SHUFFLE].answers, live[TRACKING].answers):
        raise WrongAnswerError(f"{' and '.join(LIVE)} gave different answers")
    return live


def gains_of(means: Means, way: str) -> list[float]:
    """Mean completion time of Storm's shuffle over a grouping's, by instances."""
    return [by_way[SHUFFLE] / by_way[way] for by_way in means.values()]


def claims_of(means: Means, messages: Messages, without_resync: Messages, longest_ms: float, said: Said) -> list[Claim]:
    """What the text on Fig 13 and 14 says, beside what was found."""
    gains = gains_of(means, OSG)
    osg = [by_way[OSG] for by_way in means.values()]
    rare = (
        f"the stand-in's dearest tuple takes {longest_ms:.0f} ms, the paper's {said.times[2]:g}: a few tuples decide "
        "how long queues are, and each of them comes too seldom to be known"
    )
    return [
        Claim(
            f"OSG's speed-up over Storm's shuffle is at least {said.least}",
            f"{said.least}",
            [min(gains)],
            said.least,
            reason=rare,
        ),
        Claim(
            f"its speed-up is {said.mean} on average, within a tenth",
            f"{said.mean}",
            [statistics.fmean(gains)],
            0.9 * said.mean,
            1.1 * said.mean,
            reason=rare,
        ),
        Claim(
            f"its largest speed-up is {said.most}, within a fifth",
            f"{said.most}",
            [max(gains)],
            0.8 * said.most,
            1.2 * said.most,
            reason="the published peaks are where Storm's shuffle is slower with more instances, on its cluster; in "
            "simulated time it never is",
        ),
        Claim(
            "OSG's completion falls with every further instance (least step)",
            said.falls,
            [min(few / more for few, more in pairwise(osg))],
            1.0,
            reason="the rate grows with the instances here, so that a further one only evens queues out; from six on "
            "the steps are within what streams differ by",
        ),
        *(
            Claim(
                f"{name} sends {said.words} additional messages (mean over instances)",
                said.words,
                [statistics.fmean(sent.values())],
                at_most=said.below,
                reason=f"{min(sent.values()):,} to {max(sent.values()):,}: each instance sends matrices whenever they "
                "are stable, and a reply in every epoch",
            )
            for name, sent in ((OSG, messages), (f"{OSG} without periodic replies", without_resync))
        ),
    ]


def result_of(found: UseCase, said: Said, note: str, figure: str) -> Result:
    """Speed-ups: mean completion time of Storm's shuffle over OSG's."""
    gains = {way: gains_of(found.means, way) for way in (OSG, TRACKING)}
    longest = 1000 * float(found.costs.max())
    metrics = {
        "speed_up_mean": statistics.fmean(gains[OSG]),
        "speed_up_least": min(gains[OSG]),
        "speed_up_most": max(gains[OSG]),
        "tracking_speed_up_mean": statistics.fmean(gains[TRACKING]),
        "tracking_speed_up_least": min(gains[TRACKING]),
        "messages": statistics.fmean(found.messages.values()),
        "messages_without_resync": statistics.fmean(found.messages_without_resync.values()),
        "least_ms": 1000 * float(found.costs.min()),
        "mean_ms": 1000 * float(found.costs.mean()),
        "most_ms": longest,
        "live_speed_up": found.live[SHUFFLE].mean / found.live[TRACKING].mean,
    }
    live = {"least_ms", "mean_ms", "most_ms", "live_speed_up"}
    return Result(
        parameters={
            "tuples": len(found.costs),
            "provisioning": PROVISIONING,
            "live_rows": len(found.live[SHUFFLE].seconds),
            "live_instances": LIVE_INSTANCES,
            "live": dict(LIVE),
        },
        metrics=metrics,
        tables=[_table(found.means), _live_table(found.live)],
        claims=claims_of(found.means, found.messages, found.messages_without_resync, longest, said),
        series=[
            Series(way, list(found.means), [1000 * by_way[way] for by_way in found.means.values()], "simulated")
            for way in SIMULATED
        ],
        published=[Published(value, f"{SOURCE}, {figure}", metric) for metric, value in said.published.items()],
        kind="simulated",
        kinds=dict.fromkeys(sorted(live), "measured"),
        notes=[
            note,
            "Published: Storm on virtual machines, the paper's data, a rate that is not given. Simulated: as many "
            f"tuples of a stand-in at {100 * PROVISIONING:.0f} % provisioning, each taking what its queries took on "
            "SQLite, measured once for each value, and the wait for a remote answer.",
            "`messages`: matrices and replies, which are sent beside the tuples, a mean over the numbers of instances; "
            "requests travel with tuples.",
            f"`live_speed_up`: the first rows on {LIVE_INSTANCES} resident instances, in threads, on the clock, with "
            "the database asked for every row; both ways gave the same answers. So few rows teach little about so many "
            "values, and what OSG itself takes for a row, a part of `executing ms`, counts where rows are short.",
        ],
    )


def _table(means: Means) -> Table:
    rows = [(instances, *(1000 * by_way[way] for way in SIMULATED)) for instances, by_way in means.items()]
    return Table("mean completion, ms (simulated)", ("instances", *SIMULATED), rows)


def _live_table(live: Mapping[str, Completed]) -> Table:
    rows = [
        (way, 1000 * one.mean, 1000 * float(np.percentile(one.seconds, 95)), 1000 * one.executing, one.messages)
        for way, one in live.items()
    ]
    return Table("resident workers (measured)", ("grouping", "mean ms", "95th ms", "executing ms", "reports"), rows)


@experiment(
    "osg-mention", title="Tweets enriched by look-ups: completion by OSG and ASSG", figure="Rivetti et al. 2016, Fig 13"
)
def mention(run: Run) -> Result:
    """MENTION: opinions about everyone whom a tweet mentions, from a database whose answers come in three tiers."""
    found = measured(mention_stream, run.pick(TWEETS, QUICK_TUPLES), run)
    note = "Who is mentioned first decides who is mentioned beside him, so that one value says what a tweet costs."
    return result_of(found, MENTION, note, "section 5.3, text on Fig 13")


@experiment(
    "osg-reach", title="Reach of tweets' authors: completion by OSG and ASSG", figure="Rivetti et al. 2016, Fig 14"
)
def reach(run: Run) -> Result:
    """REACH: how many users are within three steps of a tweet's author in a graph of followers."""
    found = measured(reach_stream, run.pick(POSTS, QUICK_TUPLES), run)
    note = "The graph has as many users, edges and followers of the most followed user as published, in circles."
    return result_of(found, REACH, note, "section 5.3, text on Fig 14")


@mention.picture
@reach.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Mean completion times by the number of instances."""
    title = f"{result.parameters['tuples']:,} tweets at {100 * result.parameters['provisioning']:.0f} % provisioning"
    y = "mean completion time, ms, simulated"
    charts.lines(figure.add_subplot(), result.series, title=title, x="instances", y=y)
