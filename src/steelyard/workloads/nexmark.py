"""NexMark: an auction site on which persons register, offer things, and bid for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.workloads.draws import Bits, Draws
from steelyard.workloads.workload import TIMESTAMP, Column, Workload, require_one_of, require_within
from steelyard.workloads.zipf import MICROS

# Figures of Apache Beam's generator, which all published runs with NexMark use.
PERSONS, AUCTIONS, BIDS = 1, 3, 46
EVENTS = PERSONS + AUCTIONS + BIDS
"""Events of a block: first the person, then auctions, then bids."""
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1_000, 10, 5
ACTIVE_PERSONS, OPEN_AUCTIONS, AHEAD = 1_000, 100, 10
"""Persons who do anything, auctions that get bids, and how many ids ahead of the newest a reference may be."""
HOT_BLOCK = 100
"""Of each so many ids one is hot: the first, and of bidders the second."""

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Tucson", "Fresno", "Nampa", "Salem", "Eugene", "Tacoma", "Spokane", "Casper", "Mesa", "Oakland")
FIRST_NAMES = ("Ada", "Alan", "Barbara", "Donald", "Edsger", "Frances", "Grace", "Jim", "Leslie", "Niklaus", "Tony")
LAST_NAMES = ("Codd", "Gray", "Hoare", "Hopper", "Knuth", "Lamport", "Liskov", "Turing", "Wirth")
CHANNELS = ("Apple", "Baidu", "Facebook", "Google")
"""Half of the bids come over one of these, the others over one of many that have numbers."""
NUMBERED_CHANNELS = 10_000

TEXTS = 4_096
"""Different texts of each kind: a row takes one of them."""
BLANK = 1 / 13
ITEM_LETTERS, DESCRIPTION_LETTERS = (3, 19), (3, 99)
PERSON_PADDING, AUCTION_PADDING, BID_PADDING = (97, 145), (306, 458), (14, 21)
"""Letters of `extra`, so that persons, auctions and bids have 200, 500 and 100 bytes on average."""

STREAMS = ("all", "persons", "auctions", "bids")

_TIME = ("event_time", TIMESTAMP)
_WORD, _NUMBER = pa.string(), pa.int64()
_EXTRA = ("extra", _WORD)
_PERSON = [
    ("id", _NUMBER),
    *((name, _WORD) for name in ("name", "email", "credit_card", "city", "state")),
]
_AUCTION = [
    ("id", _NUMBER),
    ("item_name", _WORD),
    ("description", _WORD),
    ("initial_bid", _NUMBER),
    ("reserve", _NUMBER),
    ("expires", TIMESTAMP),
    ("seller", _NUMBER),
    ("category", _NUMBER),
]
_BID = [("auction", _NUMBER), ("bidder", _NUMBER), ("price", _NUMBER), ("channel", _WORD), ("url", _WORD)]
SCHEMAS = {
    "persons": pa.schema([_TIME, *_PERSON, _EXTRA]),
    "auctions": pa.schema([_TIME, *_AUCTION, _EXTRA]),
    "bids": pa.schema([_TIME, *_BID, _EXTRA]),
    "all": pa.schema([_TIME, ("kind", _WORD), *dict.fromkeys([*_PERSON, *_AUCTION, *_BID, _EXTRA])]),
}


@dataclass(frozen=True)
class Nexmark(Workload):
    """Of every 50 events one is a new person, three are auctions, and 46 are bids.

    Everything about event e is drawn by its number. So each of the three streams can be read alone, and has the same
    rows as in the stream of all events: row n of the bids is the n-th bid. That one has a column `kind` (`person`,
    `auction`, `bid`) and the columns of all kinds, null where they are of another.

    Parameters
    ----------
    stream
        `all`, `persons`, `auctions` or `bids`.
    hot_auctions, hot_sellers, hot_bidders
        A bid is for the hot auction with probability 1 - 1/ratio, and so on; with 1 there is none that is hot.
    skew
        Above 0 it is the probability that a key is hot, for all three, whatever the ratios.
    auction_seconds
        How long an auction is open, on average.
    seed
        Chooses all fields.

    Examples
    --------
    >>> bid = Nexmark("bids", seed=1).rows(0, 1, np.zeros(1)).to_pylist()[0]
    >>> bid["auction"], bid["bidder"], bid["price"], bid["channel"]
    (1005, 1001, 79363851, 'Facebook')
    >>> Nexmark(seed=1).rows(0, 6, np.zeros(6)).column("kind").to_pylist()
    ['person', 'auction', 'auction', 'auction', 'bid', 'bid']
    """

    stream: str = "all"
    hot_auctions: float = 2.0
    hot_sellers: float = 4.0
    hot_bidders: float = 4.0
    skew: float = 0.0
    auction_seconds: float = 10.0
    seed: int = 0

    name: ClassVar[str] = "nexmark"

    def __post_init__(self) -> None:
        require_one_of("stream", self.stream, STREAMS)
        for option in ("hot_auctions", "hot_sellers", "hot_bidders"):
            require_within(option, getattr(self, option), 1, float("inf"))
        require_within("skew", self.skew, 0, 1)
        require_within("auction_seconds", self.auction_seconds, 0.001, 1e6)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the stream."""
        return SCHEMAS[self.stream]

    def _columns(self, rows: Bits, draws: Draws, times: Ints) -> Sequence[Column]:
        if self.stream == "all":
            return self._all(rows.astype(np.int64), times)
        first, each = {"persons": (0, PERSONS), "auctions": (PERSONS, AUCTIONS), "bids": (PERSONS + AUCTIONS, BIDS)}[
            self.stream
        ]
        block, place = np.divmod(rows.astype(np.int64), each)
        return self._of_kind(self.stream, block * EVENTS + first + place, times)

    def _of_kind(self, stream: str, events: Ints, times: Ints) -> list[Column]:
        """The columns of events of one kind."""
        draws = Draws(self.seed, events.astype(np.uint64))
        make = {"persons": self._persons, "auctions": self._auctions, "bids": self._bids}[stream]
        return [times, *make(events, draws, times)]

    def _all(self, events: Ints, times: Ints) -> list[Column]:
        place = events % EVENTS
        kind = np.searchsorted([PERSONS, PERSONS + AUCTIONS], place, side="right")
        found: dict[str, pa.Array] = {}
        for number, stream in enumerate(STREAMS[1:]):
            own = kind == number
            made = self._of_kind(stream, events[own], times[own])
            at = pa.array(np.cumsum(own) - 1, mask=~own)
            for field, column in zip(SCHEMAS[stream], made, strict=True):
                spread = pa.array(column, field.type).take(at)
                known = found.get(field.name)
                found[field.name] = spread if known is None else pc.coalesce(known, spread)
        found |= {"event_time": times, "kind": pa.array(["person", "auction", "bid"]).take(pa.array(kind))}
        return [found[name] for name in SCHEMAS["all"].names]

    def _persons(self, events: Ints, draws: Draws, times: Ints) -> list[Column]:
        name = draws.integers("name", len(FIRST_NAMES) * len(LAST_NAMES))
        return [
            FIRST_ID + _newest_person(events),
            _names().take(pa.array(name)),
            _emails().take(pa.array(name)),
            _cards().take(pa.array(draws.integers("card", TEXTS))),
            pa.array(CITIES).take(pa.array(draws.integers("city", len(CITIES)))),
            pa.array(STATES).take(pa.array(draws.integers("state", len(STATES)))),
            _drawn(draws, "person extra", PERSON_PADDING),
        ]

    def _auctions(self, events: Ints, draws: Draws, times: Ints) -> list[Column]:
        bid = _prices(draws, "initial bid")
        seller = self._person(events, draws, "seller", self.hot_sellers, 0)
        life = 1000 + (draws.uniform("life") * 2 * self.auction_seconds * MICROS).astype(np.int64)
        return [
            FIRST_ID + _newest_auction(events),
            _drawn(draws, "item", ITEM_LETTERS),
            _drawn(draws, "description", DESCRIPTION_LETTERS),
            bid,
            bid + _prices(draws, "reserve"),
            times + life,
            seller,
            FIRST_CATEGORY + draws.integers("category", CATEGORIES),
            _drawn(draws, "auction extra", AUCTION_PADDING),
        ]

    def _bids(self, events: Ints, draws: Draws, times: Ints) -> list[Column]:
        newest = _newest_auction(events)
        oldest = np.maximum(newest - OPEN_AUCTIONS, 0)
        any_auction = oldest + _below(draws, "auction", newest - oldest + 1 + AHEAD)
        auction = self._hot(draws, "hot auction", self.hot_auctions, newest - newest % HOT_BLOCK, any_auction)
        numbered = len(CHANNELS) + draws.integers("numbered channel", NUMBERED_CHANNELS)
        known = draws.integers("known channel", len(CHANNELS))
        channel = pa.array(np.where(draws.happens("channel", 0.5), known, numbered))
        names, addresses = _channels()
        return [
            FIRST_ID + auction,
            self._person(events, draws, "bidder", self.hot_bidders, 1),
            _prices(draws, "price"),
            names.take(channel),
            addresses.take(channel),
            _drawn(draws, "bid extra", BID_PADDING),
        ]

    def _person(self, events: Ints, draws: Draws, whose: str, ratio: float, hot_place: int) -> Ints:
        """int64[events]: who offers or bids."""
        newest = _newest_person(events)
        active = np.minimum(newest + 1, ACTIVE_PERSONS)
        anybody = newest + 1 - active + _below(draws, whose, active + AHEAD)
        return FIRST_ID + self._hot(draws, f"hot {whose}", ratio, newest - newest % HOT_BLOCK + hot_place, anybody)

    def _hot(self, draws: Draws, which: str, ratio: float, hot: Ints, other: Ints) -> Ints:
        share = self.skew or 1 - 1 / ratio
        return np.where(draws.happens(which, share), hot, other)


def _newest_person(events: Ints) -> Ints:
    """int64[events]: the number of the newest person, from 0, when an event comes."""
    return np.asarray(events // EVENTS)


def _newest_auction(events: Ints) -> Ints:
    """int64[events]: the number of the newest auction, from 0, when an event comes; -1 before the first."""
    block, place = np.divmod(events, EVENTS)
    return np.asarray(block * AUCTIONS + np.clip(place - PERSONS, -1, AUCTIONS - 1))


def _below(draws: Draws, stream: str, bound: Ints) -> Ints:
    """int64[rows]: a whole number from 0 to below each row's bound."""
    return (draws.uniform(stream) * bound).astype(np.int64)


CELLS = 4_096
_POWERS = np.array([10.0 ** (6 * cell / CELLS) for cell in range(CELLS)])


def _prices(draws: Draws, stream: str) -> Ints:
    """int64[rows]: round(100 * 10^(6 u)) cents, of u uniform in [0, 1).

    The power is that of a table times a short series: products and sums are the same however rows are sliced.
    """
    u = draws.uniform(stream) * CELLS
    cell = u.astype(np.int64)
    x: Floats = (u - cell) * (6 * log(10) / CELLS)
    return np.rint(100 * _POWERS[cell] * (1 + x * (1 + x * (1 / 2 + x * (1 / 6 + x / 24))))).astype(np.int64)


def _drawn(draws: Draws, what: str, letters: tuple[int, int]) -> pa.Array:
    """One of the texts of a kind for each row."""
    return _texts(what, *letters).take(pa.array(draws.integers(what, TEXTS)))


@lru_cache(maxsize=16)
def _texts(what: str, shortest: int, longest: int) -> pa.Array:
    """Texts of letters and some blanks, `shortest` to `longest` long."""
    lengths = shortest + Draws(0, _numbers(TEXTS)).integers(f"{what} length", longest - shortest + 1)
    draws = Draws(0, _numbers(int(lengths.sum())))
    letters = ord("a") + draws.integers(f"{what} letter", 26)
    letters[draws.happens(f"{what} blank", BLANK)] = ord(" ")
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.StringArray.from_buffers(TEXTS, pa.py_buffer(offsets), pa.py_buffer(letters.astype(np.uint8)))


@lru_cache(maxsize=1)
def _names() -> pa.Array:
    return pa.array([f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES])


@lru_cache(maxsize=1)
def _emails() -> pa.Array:
    return pa.array([f"{name.replace(' ', '.').lower()}@example.com" for name in _names().to_pylist()])


@lru_cache(maxsize=1)
def _cards() -> pa.Array:
    fours = np.stack([Draws(0, _numbers(TEXTS)).integers(f"card {part}", 10_000) for part in range(4)], axis=1)
    return pa.array([" ".join(f"{four:04d}" for four in card) for card in fours.tolist()])


@lru_cache(maxsize=1)
def _channels() -> tuple[pa.Array, pa.Array]:
    """Names and addresses of all channels."""
    names = [*CHANNELS, *(f"channel-{number}" for number in range(NUMBERED_CHANNELS))]
    return pa.array(names), pa.array([f"https://example.com/{name.lower()}/item.htm" for name in names])


def _numbers(count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.arange(count, dtype=np.uint64)
