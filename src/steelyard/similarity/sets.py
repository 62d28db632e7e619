"""The Jaccard distance of sets: of lists, or of the words of a text."""

from __future__ import annotations

from dataclasses import dataclass

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

_SMALL_BLOCK = 1024
"""Pairs of a block up to which comparing each is faster than making an index."""


@dataclass(frozen=True)
class Sets:
    """Sets, one after the other.

    Attributes
    ----------
    tokens
        The members of all sets, integers or strings.
    starts
        int64[n + 1]: set i is `tokens[starts[i]:starts[i + 1]]`, each member once.
    """

    tokens: pa.Array
    starts: Ints

    def __len__(self) -> int:
        return len(self.starts) - 1


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
        words = is_text(whole.type)
        if words:
            whole = pc.utf8_split_whitespace(whole.cast(pa.large_string()))
        parts = list_parts(whole)
        if parts is None:
            raise wrong_column(self.name, whole.type, "text, or lists of integers or strings")
        values, starts, lengths = parts
        tokens = _tokens(values, self.name, whole.type)
        lengths = np.where(bad, 0, lengths)
        tokens = tokens.take(pa.array(members(starts, lengths)))
        owners = np.repeat(np.arange(len(whole)), lengths)
        holed = np.zeros(len(whole), dtype=bool)
        holed[owners[tokens.is_null().to_numpy(zero_copy_only=False)]] = True
        keep = ~holed[owners]
        if words:  # white space at either end leaves an empty word
            keep &= pc.fill_null(pc.not_equal(tokens, ""), False).to_numpy(zero_copy_only=False)
        return _each_once(tokens, owners, keep, len(whole)), bad | holed

    def take(self, records: Sets, index: Ints) -> Sets:
        """The sets at these positions."""
        index = np.asarray(index, dtype=np.int64)
        lengths = np.diff(records.starts)[index]
        return Sets(records.tokens.take(pa.array(members(records.starts[index], lengths))), ends_of(lengths))

    def join(self, first: Sets, second: Sets) -> Sets:
        """Both, one after the other."""
        _one_type(first, second)
        starts = np.concatenate([first.starts, second.starts[1:] + first.starts[-1]])
        return Sets(pa.concat_arrays([first.tokens, second.tokens]), starts)

    def value(self, records: Sets, position: int) -> object:
        """The set's members, sorted."""
        start, end = int(records.starts[position]), int(records.starts[position + 1])
        return sorted(records.tokens[start:end].to_pylist())

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
        first, second, known = _ids(left, right)
        if t < 1 and len(left) * len(right) > _SMALL_BLOCK:
            indexed: Pairs = kernel.jaccard_within(first, left.starts, second, right.starts, known, t)
            return indexed
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


def _each_once(tokens: pa.Array, owners: Ints, keep: Bools, count: int) -> Sets:
    """The kept tokens of each owner, without repetition, in the order of their first place."""
    places = np.flatnonzero(keep)
    tokens, owners = tokens.take(pa.array(places)), owners[places]
    codes = tokens.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    known = int(codes.max()) + 1 if len(codes) else 1
    _, firsts = np.unique(owners * known + codes, return_index=True)
    firsts = np.sort(firsts)
    return Sets(tokens.take(pa.array(firsts)), ends_of(np.bincount(owners[firsts], minlength=count)))


def _one_type(left: Sets, right: Sets) -> None:
    if left.tokens.type != right.tokens.type:
        raise OptionError(
            f"metric 'jaccard' cannot compare sets of {left.tokens.type} and of {right.tokens.type}: "
            "cast the two columns to one type"
        )


def _ids(left: Sets, right: Sets) -> tuple[Ints, Ints, int]:
    """The members of both sides as ids 0, 1, ..., sorted inside each set, and how many ids there are."""
    _one_type(left, right)
    together = left.tokens if right is left else pa.concat_arrays([left.tokens, right.tokens])
    encoded = together.dictionary_encode()
    ids = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    first = ids[: len(left.tokens)].copy()
    kernel.sort_sets(first, left.starts)
    if right is left:
        return first, first, len(encoded.dictionary)
    second = ids[len(left.tokens) :].copy()
    kernel.sort_sets(second, right.starts)
    return first, second, len(encoded.dictionary)
