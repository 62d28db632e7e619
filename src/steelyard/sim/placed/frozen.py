"""The applications of the scheduling papers with the constants that all experiments use.

Constants are read from `frozen.json`, which `python -m steelyard.bench.placement.calibration` wrote: fitted to what is
published of the default scheduler, and to nothing else. Which of them were fitted, which assumed, and how far off the
fit is stands in the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.core.errors import OptionError
from steelyard.core.placing import FIELDS, Host
from steelyard.sim.placed.costs import Application, ClusterCosts, Deployed, Flow, Unit

FILE = Path(__file__).with_name("frozen.json")
WORDS_A_LINE = 8.0
"""Words of a line of text, for the stream word count."""
VOCABULARY = 3000
"""Different words of a novel that are told apart."""


@dataclass(frozen=True)
class Constants:
    """Costs of the cluster, and seconds and rates of the applications.

    Parameters
    ----------
    costs
        Of the cluster.
    seconds
        By application and component: seconds of a core for a tuple.
    rates
        By application: source tuples per second for each thread of a source.
    chapter2
        By application: by how much chapter 2's work for a tuple is more than chapter 3's.
    """

    costs: ClusterCosts
    seconds: Mapping[str, Mapping[str, float]]
    rates: Mapping[str, float]
    chapter2: Mapping[str, float]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Constants:
        """From what the file has."""
        return cls(ClusterCosts(**given["costs"]), given["seconds"], given["rates"], given["chapter2"])


@cache
def frozen() -> Constants:
    """What the file has."""
    return Constants.of(json.loads(FILE.read_text(encoding="utf-8")))


@cache
def word_shares() -> tuple[float, ...]:
    """How often each word comes, the most frequent first: Zipf's law."""
    return tuple((1.0 / np.arange(1, VOCABULARY + 1)).tolist())


def word_count(constants: Constants, spouts: int, split: int, count: int, store: int, chapter: int = 3) -> Application:
    """Lines to words to counts to a database."""
    return _word_count(constants, {"spout": spouts}, (split, count, store), chapter)


def word_count_of_two(constants: Constants, spouts: tuple[int, int], split: int, count: int, store: int) -> Application:
    """The same with lines from two sources."""
    return _word_count(constants, {"spout1": spouts[0], "spout2": spouts[1]}, (split, count, store), 2)


def _word_count(
    constants: Constants, sources: Mapping[str, int], threads: tuple[int, int, int], chapter: int
) -> Application:
    of, more = constants.seconds["words"], constants.chapter2["words"] if chapter == 2 else 1.0
    split, count, store = threads
    return Application(
        (
            *(Unit(name, number, of["spout"], source=True) for name, number in sources.items()),
            Unit("split", split, of["split"]),
            Unit("count", count, of["count"] * more),
            Unit("store", store, of["store"] * more),
        ),
        (
            *(Flow(name, "split") for name in sources),
            Flow("split", "count", FIELDS, WORDS_A_LINE),
            Flow("count", "store"),
        ),
        constants.rates["words"] * sum(sources.values()),
        word_shares(),
    )


def log_stream(
    constants: Constants, spouts: int, rules: int, indexer: int, counter: int, stores: int, chapter: int = 3
) -> Application:
    """Log entries to rules, and from there both to an index and to counts, each with a database."""
    of, more = constants.seconds["logs"], constants.chapter2["logs"] if chapter == 2 else 1.0
    return Application(
        (
            Unit("spout", spouts, of["spout"], source=True),
            Unit("rules", rules, of["rules"] * more),
            Unit("indexer", indexer, of["indexer"] * more),
            Unit("counter", counter, of["counter"] * more),
            Unit("store1", stores, of["store"] * more),
            Unit("store2", stores, of["store"] * more),
        ),
        (
            Flow("spout", "rules"),
            Flow("rules", "indexer"),
            Flow("rules", "counter"),
            Flow("indexer", "store1"),
            Flow("counter", "store2"),
        ),
        constants.rates["logs"] * spouts,
    )


def continuous_queries(constants: Constants, spouts: int, query: int, file: int) -> Application:
    """Queries, each of which goes through a table row by row, and a file for what they find."""
    of = constants.seconds["queries"]
    return Application(
        (
            Unit("spout", spouts, of["spout"], source=True),
            Unit("query", query, of["query"]),
            Unit("file", file, of["file"]),
        ),
        (Flow("spout", "query"), Flow("query", "file")),
        constants.rates["queries"] * spouts,
    )


def _singles(constants: Constants) -> dict[str, Application]:
    return {
        "wc-30": word_count(constants, 6, 8, 8, 8, chapter=2),
        "wc-15": word_count(constants, 3, 4, 4, 4, chapter=2),
        "wc-7": word_count(constants, 1, 2, 2, 2, chapter=2),
        "wc-2-sources": word_count_of_two(constants, (6, 6), 8, 8, 8),
        "lsp-33": log_stream(constants, 3, 6, 6, 6, 6, chapter=2),
        "cq-31": continuous_queries(constants, 5, 13, 13),
        "cq-small": continuous_queries(constants, 2, 9, 9),
        "cq-medium": continuous_queries(constants, 5, 25, 20),
        "cq-large": continuous_queries(constants, 10, 45, 45),
        "lsp-large": log_stream(constants, 10, 20, 20, 20, 15),
        "wc-large": word_count(constants, 10, 30, 30, 30),
    }


TRIPLES = ("cq-small", "cq-medium", "cq-large", "wc-large", "lsp-large")
"""Of which three instances run together in chapter 4."""
HYBRID = ("cq-large", "wc-large", "lsp-large")
"""One of each: the hybrid scenario."""
MACHINES = 10


def deployed(name: str, constants: Constants | None = None, machines: int = MACHINES) -> Deployed:
    """A setup of the papers by name, with the frozen constants.

    >>> deployed("cq-small").setup.threads, deployed("3x-wc-large").setup.threads
    (20, 300)
    """
    used = constants or frozen()
    singles = _singles(used)
    if name == "hybrid":
        applications = tuple((one.partition("-")[0], singles[one]) for one in HYBRID)
    elif name.startswith("3x-") and name[3:] in TRIPLES:
        applications = tuple((letter, singles[name[3:]]) for letter in "abc")
    elif name in singles:
        applications = ((name.partition("-")[0], singles[name]),)
    else:
        raise OptionError.unknown("setup", name, setups())
    return Deployed(applications, machines * (Host(),), used.costs)


def setups() -> list[str]:
    """Names of all setups.

    >>> len(setups())
    17
    """
    return [*_singles(frozen()), *(f"3x-{name}" for name in TRIPLES), "hybrid"]
