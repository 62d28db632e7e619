"""Short texts of which a share are copies of earlier ones with small edits, as in feeds, adverts and tickets."""

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
from steelyard.workloads.ranks import rank_table
from steelyard.workloads.vocabulary import MANDELBROT_EXPONENT, MANDELBROT_SHIFT, MAX_WORDS, vocabulary
from steelyard.workloads.workload import TIMESTAMP, Column, Workload, require_one_of, require_within
from steelyard.workloads.zipf import MAX_EXPONENT

SHORTEST, LONGEST = 6, 12
"""Words of a text, before it is edited."""
WORD_SLOTS, EDIT_SLOTS = 16, 4
"""Draws set aside for the words and for the edits of one text."""
MOST_COPIES = 0.9
"""A copy of a copy is traced back to the original, which takes `1 / (1 - copies)` steps on average."""
MAX_REACH = 1 << 31
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SUBSTITUTE, DELETE, INSERT = range(3)
REPLACE, DROP, SWAP = range(3)


@dataclass(frozen=True)
class NearDuplicates(Workload):
    """One text a row, its number, and the number of the text that it is a copy of: its own where it is none.

    Row n is a copy of a row that is drawn from the `reach` rows before it, or, where that is itself a copy, of its
    original. So all copies differ from their original by `edits` edits at most, and some originals have many.

    Parameters
    ----------
    copies
        Share of the texts that are copies, 0 to 0.9.
    edits
        Each copy has 1 to so many edits, up to 4; with 0 copies are exact.
    edit
        `letters`: a letter or space is replaced, left out or put in, so the edit distance to the original is
        `edits` at most. `words`: a word is replaced, left out, or changes places with the next.
    reach
        How many rows back the copied one is at most.
    words
        Size of the vocabulary, up to 10^6.
    exponent
        Skew of the words, 0 to 4.
    shift
        Mandelbrot's q, 0 to 100.
    seed
        Chooses words, copies and edits.

    Examples
    --------
    >>> texts = NearDuplicates(copies=0.5, seed=3).rows(1, 5, np.zeros(5))
    >>> for text in texts.to_pylist():
    ...     print(text["id"], text["original"], text["text"])
    1 1 bapo le doje be ka gugu gaye
    2 2 xa ba di je pa bohu balo do
    3 1 bapo le dojeube ka guwgu gaye
    4 1 bapo le oj be ka gugu gaye
    5 1 bapo le doje be ka gugku gaye
    """

    copies: float = 0.3
    edits: int = 2
    edit: str = "letters"
    reach: int = 1_000
    words: int = 10_000
    exponent: float = MANDELBROT_EXPONENT
    shift: float = MANDELBROT_SHIFT
    seed: int = 0

    name: ClassVar[str] = "near_duplicates"
    schema: ClassVar[pa.Schema] = pa.schema(
        [("event_time", TIMESTAMP), ("id", pa.int64()), ("text", pa.string()), ("original", pa.int64())]
    )

    def __post_init__(self) -> None:
        require_within("copies", self.copies, 0, MOST_COPIES)
        require_within("edits", self.edits, 0, EDIT_SLOTS)
        require_one_of("edit", self.edit, ["letters", "words"])
        require_within("reach", self.reach, 1, MAX_REACH)
        require_within("words", self.words, 1, MAX_WORDS)
        require_within("exponent", self.exponent, 0, MAX_EXPONENT)
        require_within("shift", self.shift, 0, 100)

    def _columns(self, rows: Bits, draws: Draws, times: Ints) -> Sequence[Column]:
        originals = self._originals(rows)
        most = max(self.edits, 1)
        edits = np.where(originals == rows, 0, np.minimum(1 + draws.integers("edits", most), self.edits))
        ranks, lengths = self._words(originals)
        if self.edit == "words":
            ranks, lengths = self._with_word_edits(ranks, lengths, rows, edits)
        texts = _texts(ranks, lengths, self.words)
        if self.edit == "letters":
            texts = self._with_letter_edits(texts, rows, edits)
        return [times, rows.astype(np.int64), texts, originals.astype(np.int64)]

    def _originals(self, rows: Bits) -> Bits:
        """uint64[rows]: the row at the end of each chain of copies, which is the row itself where it is no copy."""
        found = rows.copy()
        open_ = np.arange(len(rows))
        while len(open_):
            here = found[open_]
            draws = Draws(self.seed, here)
            copied = draws.happens("copy", self.copies) & (here > 0)
            open_, here = open_[copied], here[copied]
            back = np.minimum(here, np.uint64(self.reach)).astype(np.float64) * draws.uniform("back")[copied]
            found[open_] = here - np.uint64(1) - back.astype(np.uint64)
        return found

    def _words(self, rows: Bits) -> tuple[Ints, Ints]:
        """The ranks of all words of these rows, one after the other, and how many words each row has."""
        lengths = SHORTEST + Draws(self.seed, rows).integers("length", LONGEST - SHORTEST + 1)
        places = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        slots = np.repeat(rows * np.uint64(WORD_SLOTS), lengths) + places.astype(np.uint64)
        return rank_table(self.exponent, self.words, self.shift).ranks(
            Draws(self.seed, slots).uniform("words")
        ), lengths

    def _with_word_edits(self, ranks: Ints, lengths: Ints, rows: Bits, edits: Ints) -> tuple[Ints, Ints]:
        starts = np.cumsum(lengths) - lengths
        ranks, kept = ranks.copy(), np.ones(len(ranks), dtype=np.bool_)
        for number in range(self.edits):
            copies = np.flatnonzero(edits > number)
            draws = Draws(self.seed, rows[copies] * np.uint64(EDIT_SLOTS) + np.uint64(number))
            kind = draws.integers("edit kind", 3)
            last = lengths[copies] - 1
            place = (draws.uniform("edit place") * last).astype(np.int64)  # never the last: each has a next
            at = starts[copies] + place
            new = rank_table(self.exponent, self.words, self.shift).ranks(draws.uniform("edit word"))
            ranks[at[kind == REPLACE]] = new[kind == REPLACE]
            kept[at[kind == DROP]] = False
            swapped = at[kind == SWAP]
            ranks[swapped], ranks[swapped + 1] = ranks[swapped + 1], ranks[swapped]
            kept[swapped], kept[swapped + 1] = kept[swapped + 1], kept[swapped]
        left = np.bincount(np.repeat(np.arange(len(lengths)), lengths)[kept], minlength=len(lengths))
        return ranks[kept], left

    def _with_letter_edits(self, texts: pa.Array, rows: Bits, edits: Ints) -> pa.Array:
        copies = np.flatnonzero(edits)
        if not len(copies):
            return texts
        numbers: Bits = np.arange(EDIT_SLOTS, dtype=np.uint64)
        slots = rows[copies][:, None] * np.uint64(EDIT_SLOTS) + numbers
        draws = Draws(self.seed, slots)
        choices = zip(
            draws.integers("edit kind", 3).tolist(),
            draws.uniform("edit place").tolist(),
            draws.integers("edit letter", len(LETTERS)).tolist(),
            strict=True,
        )
        edited = []
        plain = texts.take(pa.array(copies)).to_pylist()
        for text, count, drawn in zip(plain, edits[copies].tolist(), choices, strict=True):
            changed = text
            for kind, place, letter in list(zip(*drawn, strict=True))[:count]:
                changed = _with_letter_edit(changed, kind, place, LETTERS[letter])
            edited.append(changed)
        return pc.replace_with_mask(texts, pa.array(edits > 0), pa.array(edited, type=pa.string()))


def _with_letter_edit(text: str, kind: int, place: float, letter: str) -> str:
    """The text with one edit at `place`, a number of [0, 1).

    >>> [_with_letter_edit("balu", kind, 0.5, "x") for kind in (SUBSTITUTE, DELETE, INSERT)]
    ['baxu', 'bau', 'baxlu']
    """
    at = int(place * len(text))
    return text[:at] + (letter if kind != DELETE else "") + text[at + (kind != INSERT) :]


def _texts(ranks: Ints, lengths: Ints, words: int) -> pa.Array:
    """Words taken one after the other are already the text: it is cut by the offsets of the words."""
    ends = np.cumsum(lengths)
    first = np.zeros(len(ranks), dtype=np.bool_)
    first[ends - lengths] = True
    taken = _spaced_vocabulary(words).take(pa.array(np.where(first, ranks, ranks + words)))
    _, offsets, letters = taken.buffers()
    letter_ends = np.frombuffer(offsets, dtype=np.int32, count=len(ranks) + 1)
    cuts = letter_ends[np.concatenate([[0], ends])]
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(cuts), letters)


@lru_cache(maxsize=2)
def _spaced_vocabulary(words: int) -> pa.Array:
    """The vocabulary twice: as a text's first word, and with a space before it."""
    plain = vocabulary(words)
    return pa.concat_arrays([plain, pc.binary_join_element_wise("", plain, " ")])
