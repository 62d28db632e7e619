"""The Jaccard distance of sets: of lists, or of the words of a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.core.errors import OptionError
from steelyard.kernels import distance_ragged as kernel
from steelyard.similarity.protocol import (
    Bools,
    Floats,
    Ints,
    Pairs,
    Shares,
    ends_of,
    is_text,
    list_parts,
    members,
    no_pairs,
    one_array,
    wrong_column,
)

Small = np.ndarray[Any, np.dtype[np.int32]]

_SMALL_BLOCK = 1024
"""Pairs of a block up to which comparing each is faster than making an index."""


_SLICE_BYTES = 1 << 20
"""Bytes of texts or lists that are taken apart at a time: what is made of them on the way is many times larger."""


class Vocabulary:
    """What the ids of members stand for: id k for `words[k]`, each word once.

    Parameters
    ----------
    words
        Integers or strings.
    """

    def __init__(self, words: pa.Array) -> None:
        self.words = words
        self._known: WeakKeyDictionary[Vocabulary, tuple[Small, int]] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self.words)

    @property
    def bytes_per_word(self) -> int:
        """On average, as a column."""
        return int(self.words.nbytes) // max(1, len(self))

    def __reduce__(self) -> tuple[type[Vocabulary], tuple[pa.Array]]:
        return Vocabulary, (self.words,)

    def ids_for(self, other: Vocabulary) -> tuple[Small, int]:
        """int32: the ids of its words as the other counts, new ones behind the last; and how many that makes."""
        if other not in self._known:
            if other.words.type != self.words.type:
                raise OptionError(
                    f"metric 'jaccard' cannot compare sets of {other.words.type} and of {self.words.type}: "
                    "cast the two columns to one type"
                )
            # what comes first is counted first: the other's words keep their ids
            both = pa.concat_arrays([other.words, self.words]).dictionary_encode()
            ids = both.indices.to_numpy(zero_copy_only=False)[len(other) :]
            self._known[other] = ids, len(both.dictionary)
        return self._known[other]


@dataclass(frozen=True)
class Sets:
    """Sets, one after the other.

    Attributes
    ----------
    ids
        int32: the members of all sets, by their place in the vocabulary.
    starts
        int64[n + 1]: set i is `ids[starts[i]:starts[i + 1]]`, sorted, each member once.
    vocabulary
        What the ids stand for, also those of sets that were left out.
    """

    ids: Small
    starts: Ints
    vocabulary: Vocabulary

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def members(self) -> pa.Array:
        """The members themselves."""
        return self.vocabulary.words.take(pa.array(self.ids))

    def to_column(self) -> pa.Array:
        """The sets as a column of lists."""
        return pa.LargeListArray.from_arrays(pa.array(self.starts), self.members)


class Jaccard(Shares):
    """1 - |A n B| / |A u B|. Members are compared themselves, never by a hash; two empty sets are equal.

    Examples
    --------
    >>> jaccard = Jaccard()
    >>> sets, bad = jaccard.records(pa.array(["a fine day", "a fine night", None]))
    >>> bad.tolist(), jaccard.pairwise(sets, sets)[0, 1].item()
    ([False, False, True], 0.5)
    """

    name = "jaccard"

    def records(self, column: pa.Array | pa.ChunkedArray, dimension: int | None = None) -> tuple[Sets, Bools]:
        """Sets of list members, or of the words between white space. Bad: null, or a list with a null or a NaN."""
        whole = one_array(column)
        bad = ~whole.is_valid().to_numpy(zero_copy_only=False)
        step = max(1, _SLICE_BYTES * len(whole) // max(1, whole.nbytes))
        slices = [self._slice(whole.slice(at, step), bad[at : at + step]) for at in range(0, max(1, len(whole)), step)]
        encoded = pa.chunked_array([ids for ids, _, _ in slices]).unify_dictionaries()
        vocabulary = Vocabulary(encoded.chunk(0).dictionary)
        ids = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in encoded.chunks])
        starts = ends_of(np.concatenate([lengths for _, lengths, _ in slices]))
        if len(slices) > 1:  # a word has another place now
            kernel.sort_sets(ids, starts)
        return Sets(ids, starts, vocabulary), bad | np.concatenate([holed for _, _, holed in slices])

    def _slice(self, column: pa.Array, bad: Bools) -> tuple[pa.DictionaryArray, Ints, Bools]:
        """The members of some rows' sets, sorted by their place in a dictionary; how many; which rows have a null."""
        words = is_text(column.type)
        lists = pc.utf8_split_whitespace(column.cast(pa.large_string())) if words else column
        parts = list_parts(lists)
        if parts is None:
            raise wrong_column(self.name, column.type, "text, or lists of integers or strings")
        values, starts, lengths = parts
        if len(starts):  # a slice of lists has the members of all lists
            values, starts = values.slice(starts[0], starts[-1] + lengths[-1] - starts[0]), starts - starts[0]
        tokens, lengths = _tokens(values, self.name, column.type), np.where(bad, 0, lengths)
        if lengths.sum() < len(tokens):
            tokens = tokens.take(pa.array(members(starts, lengths)))
        encoded = tokens.dictionary_encode()
        dictionary = encoded.dictionary
        codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
        owners = np.repeat(np.arange(len(column)), lengths)
        holed = np.zeros(len(column), dtype=bool)
        holed[owners[codes < 0]] = True
        keep = ~holed[owners]
        if words:  # white space at either end leaves an empty word
            keep &= codes != pc.index(dictionary, "").as_py()
        known = max(1, len(dictionary))
        once = np.unique(owners[keep] * known + codes[keep])
        ids = pa.array((once % known).astype(np.int32))
        sizes = np.bincount(once // known, minlength=len(column))
        return pa.DictionaryArray.from_arrays(ids, dictionary), sizes, holed

    def take(self, records: Sets, index: Ints) -> Sets:
        """The sets at these positions."""
        index = np.asarray(index, dtype=np.int64)
        if len(index) and (np.diff(index) == 1).all():  # a stretch: no copy
            starts = records.starts[index[0] : index[-1] + 2]
            return Sets(records.ids[starts[0] : starts[-1]], starts - starts[0], records.vocabulary)
        starts = ends_of(np.diff(records.starts)[index])
        return Sets(kernel.gathered(records.ids, records.starts, index, starts), starts, records.vocabulary)

    def join(self, first: Sets, second: Sets) -> Sets:
        """Both, one after the other."""
        starts = np.concatenate([first.starts, second.starts[1:] + first.starts[-1]])
        if first.vocabulary is second.vocabulary:
            return Sets(np.concatenate([first.ids, second.ids]), starts, first.vocabulary)
        places, known = second.vocabulary.ids_for(first.vocabulary)
        ids = np.concatenate([first.ids, places[second.ids]])
        kernel.sort_sets(ids, starts)
        fresh = np.flatnonzero(places >= len(first.vocabulary))
        words = pa.concat_arrays([first.vocabulary.words, second.vocabulary.words.take(pa.array(fresh))])
        assert len(words) == known
        return Sets(ids, starts, Vocabulary(words))

    def value(self, records: Sets, position: int) -> object:
        """The set's members, sorted."""
        start, end = int(records.starts[position]), int(records.starts[position + 1])
        return sorted(records.vocabulary.words.take(pa.array(records.ids[start:end])).to_pylist())

    def pairwise(self, left: Sets, right: Sets) -> Floats:
        """float64[n, m]: all distances."""
        first, second, _ = _ids(left, right)
        return np.asarray(kernel.pairwise(kernel.JACCARD, first, left.starts, second, right.starts))

    def rows(self, left: Sets, i: Ints, right: Sets, j: Ints) -> Floats:
        """float64[len(i)]: the distances of the pairs (i[p], j[p])."""
        first, second, _ = _ids(left, right)
        return np.asarray(kernel.of_rows(kernel.JACCARD, first, left.starts, i, second, right.starts, j))

    def within(self, left: Sets, right: Sets, t: float) -> Pairs:
        """The pairs at a distance of at most `t`: of larger blocks by an index of who holds what."""
        if not t >= 0:
            return no_pairs()
        if t < 1 and len(left) * len(right) > _SMALL_BLOCK:
            indexed: Pairs = kernel.jaccard_within(*_ids(left, right), left.starts, right.starts, t)
            return indexed
        first, second, _ = _ids(left, right)
        rows, columns = np.array([0, len(left)]), np.array([0, len(right)])
        pairs: Pairs = kernel.within_groups(kernel.JACCARD, first, left.starts, rows, second, right.starts, columns, t)
        return pairs

    def within_groups(self, left: Sets, left_starts: Ints, right: Sets, right_starts: Ints, t: float) -> Pairs:
        """The pairs within `t` inside many blocks, in one compiled call."""
        if not t >= 0:
            return no_pairs()
        first, second, _ = _ids(left, right)
        pairs: Pairs = kernel.within_groups(
            kernel.JACCARD, first, left.starts, left_starts, second, right.starts, right_starts, t
        )
        return pairs


def _tokens(values: pa.Array, metric: str, kind: pa.DataType) -> pa.Array:
    if pa.types.is_integer(values.type):
        return values.cast(pa.int64())
    if is_text(values.type):
        return values.cast(pa.large_string())
    raise wrong_column(metric, kind, "text, or lists of integers or strings")


def _ids(left: Sets, right: Sets) -> tuple[Small, Small, int]:
    """The members of both sides as ids of one vocabulary, sorted inside each set; and how many ids there are."""
    if right.vocabulary is left.vocabulary:
        return left.ids, right.ids, len(left.vocabulary)
    places, known = right.vocabulary.ids_for(left.vocabulary)
    second = places[right.ids]
    kernel.sort_sets(second, right.starts)
    return left.ids, second, known
