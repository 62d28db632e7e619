"""Words one by one: the input of a word count after the tweets have been cut into words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from steelyard.core.counts import Ints
from steelyard.workloads.draws import Bits, Draws
from steelyard.workloads.ranks import rank_table
from steelyard.workloads.vocabulary import MANDELBROT_EXPONENT, MANDELBROT_SHIFT, MAX_WORDS, vocabulary
from steelyard.workloads.workload import TIMESTAMP, Column, Workload, require_within
from steelyard.workloads.zipf import MAX_EXPONENT


@dataclass(frozen=True)
class Words(Workload):
    """One word a row, by the law of Zipf and Mandelbrot.

    Parameters
    ----------
    words
        Size of the vocabulary, up to 10^6.
    exponent
        Skew of the words, 0 to 4.
    shift
        Mandelbrot's q, 0 to 100: larger makes the most frequent words more equal.
    seed
        Chooses the words.

    Examples
    --------
    >>> import numpy as np
    >>> Words(words=1000, seed=3).rows(0, 5, np.zeros(5)).column("word").to_pylist()
    ['ri', 'bu', 'ba', 'dibo', 'ba']
    """

    words: int = 100_000
    exponent: float = MANDELBROT_EXPONENT
    shift: float = MANDELBROT_SHIFT
    seed: int = 0

    name: ClassVar[str] = "words"
    schema: ClassVar[pa.Schema] = pa.schema([("event_time", TIMESTAMP), ("word", pa.string())])

    def __post_init__(self) -> None:
        require_within("words", self.words, 1, MAX_WORDS)
        require_within("exponent", self.exponent, 0, MAX_EXPONENT)
        require_within("shift", self.shift, 0, 100)

    def _columns(self, rows: Bits, draws: Draws, times: Ints) -> Sequence[Column]:
        ranks = rank_table(self.exponent, self.words, self.shift).ranks(draws.uniform("word"))
        return [times, vocabulary(self.words).take(pa.array(ranks))]
