"""Tweet-like text: 10 to 20 words by the law of Zipf and Mandelbrot, from users of whom some write much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.core.counts import Ints
from steelyard.workloads.draws import Bits, Draws
from steelyard.workloads.ranks import MAX_KEYS, rank_table
from steelyard.workloads.vocabulary import MANDELBROT_EXPONENT, MANDELBROT_SHIFT, MAX_WORDS, vocabulary
from steelyard.workloads.workload import TIMESTAMP, Column, Workload, require_within
from steelyard.workloads.zipf import MAX_EXPONENT

SHORTEST, LONGEST = 10, 20
"""Words of a tweet."""
SLOTS = 32
"""Draws set aside for the words of one tweet: word j of row n is draw 32 n + j."""
USER_EXPONENT = 0.6
"""A mild skew: among 10^5 users the busiest writes about 0.4 % of the tweets."""


@dataclass(frozen=True)
class Tweets(Workload):
    """One tweet a row: its number, the user's, and its text.

    Parameters
    ----------
    words
        Size of the vocabulary, up to 10^6.
    exponent
        Skew of the words, 0 to 4.
    shift
        Mandelbrot's q, 0 to 100.
    users
        Number of users, up to 10^7.
    seed
        Chooses words, lengths and users.

    Examples
    --------
    >>> tweet = Tweets(words=1000, seed=3).rows(0, 1, np.zeros(1))
    >>> tweet.column("text").to_pylist()
    ['fa so go da lu ki hu dexu dagi de fe boge be bepi diba bino pi gi bazo']
    """

    words: int = 100_000
    exponent: float = MANDELBROT_EXPONENT
    shift: float = MANDELBROT_SHIFT
    users: int = 100_000
    seed: int = 0

    name: ClassVar[str] = "tweets"
    schema: ClassVar[pa.Schema] = pa.schema(
        [("event_time", TIMESTAMP), ("tweet_id", pa.int64()), ("user_id", pa.int64()), ("text", pa.string())]
    )

    def __post_init__(self) -> None:
        require_within("words", self.words, 1, MAX_WORDS)
        require_within("exponent", self.exponent, 0, MAX_EXPONENT)
        require_within("shift", self.shift, 0, 100)
        require_within("users", self.users, 1, MAX_KEYS)

    def _columns(self, rows: Bits, draws: Draws, times: Ints) -> Sequence[Column]:
        users = rank_table(USER_EXPONENT, self.users).ranks(draws.uniform("user"))
        lengths = SHORTEST + draws.integers("length", LONGEST - SHORTEST + 1)
        return [times, rows.astype(np.int64), users, self._texts(rows, lengths)]

    def _texts(self, rows: Bits, lengths: Ints) -> pa.Array:
        """Words taken one after the other are already the text: the tweets are cut by their offsets."""
        ends = np.cumsum(lengths)
        starts = ends - lengths
        slots = np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
        draws = Draws(self.seed, np.repeat(rows * np.uint64(SLOTS), lengths) + slots.astype(np.uint64))
        ranks = rank_table(self.exponent, self.words, self.shift).ranks(draws.uniform("words"))
        ranks[slots > 0] += self.words
        taken = _spaced_vocabulary(self.words).take(pa.array(ranks))
        _, offsets, letters = taken.buffers()
        letter_ends = np.frombuffer(offsets, dtype=np.int32, count=len(ranks) + 1)
        cuts = letter_ends[np.append(starts, len(ranks))]
        return pa.StringArray.from_buffers(len(rows), pa.py_buffer(cuts), letters)


@lru_cache(maxsize=2)
def _spaced_vocabulary(words: int) -> pa.Array:
    """The vocabulary twice: as a tweet's first word, and with a space before it."""
    plain = vocabulary(words)
    return pa.concat_arrays([plain, pc.binary_join_element_wise("", plain, " ")])
