"""A user's own key counts: the file that they are read from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from steelyard.core import OptionError
from steelyard.core.counts import Ints

BATCH, KEY, ROWS = "batch", "key", "rows"


def read_counts(path: Path) -> list[Ints]:
    """The counts of each batch of a file: columns `key` and `rows`, and `batch` where there are several.

    OptionError, with the remedy, for another kind of file, a column that is missing, and counts that are none.
    """
    try:
        if path.suffix == ".parquet":
            table = pyarrow.parquet.read_table(path)
        elif path.suffix == ".csv":
            table = pyarrow.csv.read_csv(path)
        else:
            raise OptionError(f"key counts are read from .parquet or .csv, got {path.name!r}")
    except (OSError, pa.ArrowInvalid) as error:
        raise OptionError(f"no key counts can be read from {path}: {error}") from error
    for column in (KEY, ROWS):
        if column not in table.column_names:
            raise OptionError(f"{path} has no column {column!r}: it needs {KEY!r} and {ROWS!r}, and may have {BATCH!r}")
    rows = table[ROWS]
    if not (pa.types.is_integer(rows.type) or pa.types.is_floating(rows.type) or pa.types.is_null(rows.type)):
        raise OptionError(f"column {ROWS!r} of {path} must be numbers, and is {rows.type}")
    numbers = np.asarray(pc.cast(rows, pa.float64()).to_numpy(zero_copy_only=False))
    wrong = ~(np.isfinite(numbers) & (numbers >= 0) & (numbers == np.floor(numbers)) & (numbers < 2**53))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise OptionError(
            f"column {ROWS!r} of {path} has {numbers[at]} in data row {at + 1}, which is no count: whole numbers of 0 "
            "or more"
        )
    whole = numbers.astype(np.int64)
    of = np.zeros(len(whole), np.int64)
    if BATCH in table.column_names:
        codes = pc.dictionary_encode(table[BATCH].combine_chunks(), null_encoding="encode").indices
        of = np.asarray(codes.to_numpy(zero_copy_only=False), np.int64)
    batches = [whole[(of == one) & (whole > 0)] for one in range(int(of.max(initial=-1)) + 1)]
    found = [one for one in batches if len(one)]
    if not found:
        raise OptionError(f"{path} has no key with rows: there is nothing to learn from")
    return found
