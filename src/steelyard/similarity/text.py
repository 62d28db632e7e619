"""Metrics of text: the edit distance, and the Hamming distance, which is also one of lists of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from steelyard.core.errors import OptionError
from steelyard.kernels import distance_ragged as kernel
from steelyard.similarity.protocol import (
    Bools,
    Distances,
    Floats,
    Ints,
    Pairs,
    Shares,
    ends_of,
    group_by_group,
    is_text,
    list_parts,
    members,
    no_pairs,
    of_table,
    one_array,
    stacked,
    wrong_column,
)

_TABLE = 1 << 22
"""Distances that are held at once."""
_LONGEST = 2**31 - 2
"""No text is further from another: distances are counted in 32 bits."""


class Edit(Distances):
    """The edit (Levenshtein) distance: how many characters to insert, remove or replace. It is a whole number.

    Examples
    --------
    >>> edit = Edit()
    >>> texts, bad = edit.records(pa.array(["kitten", "sitting", None]))
    >>> bad.tolist(), [found.tolist() for found in edit.within(texts[:1], texts[1:2], 3)]
    ([False, False, True], [[0], [0], [3.0]])
    """

    name = "edit"
    normal = False
    slack = 0.0

    def records(self, column: pa.Array | pa.ChunkedArray, dimension: int | None = None) -> tuple[list[str], Bools]:
        """Texts. Bad: null."""
        whole = one_array(column)
        if not is_text(whole.type):
            raise wrong_column(self.name, whole.type, "text")
        bad = ~whole.is_valid().to_numpy(zero_copy_only=False)
        return pc.fill_null(whole, "").to_pylist(), bad

    def take(self, records: Sequence[str], index: Ints) -> list[str]:
        """The texts at these positions."""
        return [records[place] for place in np.asarray(index).tolist()]

    def join(self, first: Sequence[str], second: Sequence[str]) -> list[str]:
        """Both, one after the other."""
        return [*first, *second]

    def value(self, records: Sequence[str], position: int) -> object:
        """The text."""
        return records[position]

    def pairwise(self, left: Sequence[str], right: Sequence[str]) -> Floats:
        """float64[n, m]: all distances."""
        if not left or not right:
            return np.empty((len(left), len(right)), dtype=np.float64)
        return process.cdist(left, right, scorer=Levenshtein.distance, dtype=np.int32).astype(np.float64)

    def rows(self, left: Sequence[str], i: Ints, right: Sequence[str], j: Ints) -> Floats:
        """float64[len(i)]: the distances of the pairs (i[p], j[p])."""
        if not len(i):
            return np.empty(0, dtype=np.float64)
        found = process.cpdist(self.take(left, i), self.take(right, j), scorer=Levenshtein.distance, dtype=np.int32)
        return found.astype(np.float64)

    def within(self, left: Sequence[str], right: Sequence[str], t: float) -> Pairs:
        """The pairs at a distance of at most `t`; a comparison ends where it is sure to be more."""
        if not t >= 0 or not left or not right:
            return no_pairs()
        most = math.floor(min(t, _LONGEST))
        step = max(1, _TABLE // len(right))
        found = []
        for start in range(0, len(left), step):
            table = process.cdist(
                left[start : start + step], right, scorer=Levenshtein.distance, score_cutoff=most, dtype=np.int32
            )
            i, j, distances = of_table(table, most)
            found.append((i + start, j, distances))
        return stacked(found)

    def within_groups(
        self, left: Sequence[str], left_starts: Ints, right: Sequence[str], right_starts: Ints, t: float
    ) -> Pairs:
        """The pairs within `t` inside many blocks, one block after the other."""
        return group_by_group(self, left, left_starts, right, right_starts, t)


@dataclass(frozen=True)
class Sequences:
    """Sequences of symbols, one after the other.

    Attributes
    ----------
    symbols
        int64: characters, integers, or the bits of floats.
    starts
        int64[n + 1]: sequence i is `symbols[starts[i]:starts[i + 1]]`.
    of
        What the symbols stand for: "characters", "integers" or "numbers".
    """

    symbols: Ints
    starts: Ints
    of: str

    def __len__(self) -> int:
        return len(self.starts) - 1


class Hamming(Shares):
    """The part of places at which two sequences differ; sequences of different lengths are at distance 1.

    Examples
    --------
    >>> hamming = Hamming()
    >>> words, _ = hamming.records(pa.array(["karol", "carol", "karo"]))
    >>> hamming.pairwise(words, words)[0].tolist()
    [0.0, 0.2, 1.0]
    """

    name = "hamming"

    def records(self, column: pa.Array | pa.ChunkedArray, dimension: int | None = None) -> tuple[Sequences, Bools]:
        """The characters of texts, or lists of numbers. Bad: null, a list with a null or NaN, another `dimension`."""
        whole = one_array(column)
        bad = ~whole.is_valid().to_numpy(zero_copy_only=False)
        if is_text(whole.type):
            texts = pc.fill_null(whole, "").to_pylist()
            lengths = np.array([len(text) for text in texts], dtype=np.int64)
            if dimension is not None:
                bad |= lengths != dimension
            characters = np.frombuffer("".join(texts).encode("utf-32-le"), dtype="<i4").astype(np.int64)
            return Sequences(characters, ends_of(lengths), "characters"), bad
        parts = list_parts(whole)
        if parts is None:
            raise wrong_column(self.name, whole.type, "text, or lists of numbers")
        values, starts, lengths = parts
        if dimension is not None:
            bad |= lengths != dimension
        lengths = np.where(bad, 0, lengths)
        numbers = values.take(pa.array(members(starts, lengths)))
        symbols, wild, of = _symbols(numbers, self.name, whole.type)
        bad[np.repeat(np.arange(len(whole)), lengths)[wild]] = True
        return Sequences(symbols, ends_of(lengths), of), bad

    def take(self, records: Sequences, index: Ints) -> Sequences:
        """The sequences at these positions."""
        records = _sequences(records)
        index = np.asarray(index, dtype=np.int64)
        starts = ends_of(np.diff(records.starts)[index])
        return Sequences(kernel.gathered(records.symbols, records.starts, index, starts), starts, records.of)

    def join(self, first: Sequences, second: Sequences) -> Sequences:
        """Both, one after the other."""
        first, second = _alike(first, second)
        starts = np.concatenate([first.starts, second.starts[1:] + first.starts[-1]])
        return Sequences(np.concatenate([first.symbols, second.symbols]), starts, first.of)

    def value(self, records: Sequences, position: int) -> object:
        """The text, or the list of numbers."""
        records = _sequences(records)
        symbols = records.symbols[records.starts[position] : records.starts[position + 1]]
        if records.of == "characters":
            return "".join(map(chr, symbols.tolist()))
        return symbols.tolist() if records.of == "integers" else symbols.view(np.float64).tolist()

    def pairwise(self, left: Sequences, right: Sequences) -> Floats:
        """float64[n, m]: all distances."""
        left, right = _alike(left, right)
        return np.asarray(kernel.pairwise(kernel.HAMMING, left.symbols, left.starts, right.symbols, right.starts))

    def rows(self, left: Sequences, i: Ints, right: Sequences, j: Ints) -> Floats:
        """float64[len(i)]: the distances of the pairs (i[p], j[p])."""
        left, right = _alike(left, right)
        return np.asarray(kernel.of_rows(kernel.HAMMING, left.symbols, left.starts, i, right.symbols, right.starts, j))

    def within(self, left: Sequences, right: Sequences, t: float) -> Pairs:
        """The pairs at a distance of at most `t`."""
        left, right = _alike(left, right)
        return self.within_groups(left, np.array([0, len(left)]), right, np.array([0, len(right)]), t)

    def within_groups(
        self, left: Sequences, left_starts: Ints, right: Sequences, right_starts: Ints, t: float
    ) -> Pairs:
        """The pairs within `t` inside many blocks, in one compiled call."""
        if not t >= 0:
            return no_pairs()
        left, right = _alike(left, right)
        pairs: Pairs = kernel.within_groups(
            kernel.HAMMING, left.symbols, left.starts, left_starts, right.symbols, right.starts, right_starts, t
        )
        return pairs


def _symbols(numbers: pa.Array, metric: str, kind: pa.DataType) -> tuple[Ints, Bools, str]:
    """Numbers as whole numbers that are equal where they are equal, which of them are none, and what they are."""
    if pa.types.is_integer(numbers.type):
        symbols = pc.fill_null(numbers.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return symbols.copy(), numbers.is_null().to_numpy(zero_copy_only=False), "integers"
    if pa.types.is_floating(numbers.type):
        floats = pc.fill_null(numbers.cast(pa.float64()), math.nan).to_numpy(zero_copy_only=False)
        return _float_symbols(floats), ~np.isfinite(floats), "numbers"
    raise wrong_column(metric, kind, "text, or lists of numbers")


def _float_symbols(floats: Floats) -> Ints:
    return (np.asarray(floats, dtype=np.float64) + 0.0).view(np.int64)  # -0.0 and 0.0 are one symbol


def _sequences(records: Any) -> Sequences:
    """Records, also where they were given as the rows of an array."""
    if isinstance(records, Sequences):
        return records
    rows = np.asarray(records)
    flat = np.ascontiguousarray(rows).reshape(-1)
    integers = np.issubdtype(rows.dtype, np.integer)
    symbols = flat.astype(np.int64) if integers else _float_symbols(flat)
    ends = np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1]
    return Sequences(symbols, ends, "integers" if integers else "numbers")


def _alike(left: Any, right: Any) -> tuple[Sequences, Sequences]:
    first = _sequences(left)
    second = first if right is left else _sequences(right)
    if first.of != second.of:
        raise OptionError(
            f"metric 'hamming' cannot compare {first.of} with {second.of}: cast the two columns to one type"
        )
    return first, second
