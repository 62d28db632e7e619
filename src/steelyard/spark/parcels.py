"""What map tasks send to reduce tasks: the records of a bucket as one row with Arrow bytes in it.

Spark then moves a few large values, where it would convert every record to its own rows and back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from steelyard.core.hidden import BUCKET, PARCEL
from steelyard.kernels.radix import stable_order
from steelyard.spark.arrow import arrow_schema

Batches = Iterator[pa.RecordBatch]

LARGEST = 1 << 18
"""Bytes of a parcel, about: arrays of half a region's size or more cost the JVM's garbage collector extra."""

SENT = T.StructType().add(BUCKET, T.IntegerType()).add(PARCEL, T.BinaryType())
"""What crosses the shuffle."""


def parcelled(combine: Callable[[Batches], Batches]) -> Callable[[Batches], Batches]:
    """What a map task makes, as parcels: records by their bucket, and batches of another kind in bucket 0."""
    schema = arrow_schema(SENT)

    def run(parts: Batches) -> Batches:
        for made in combine(parts):
            parcels = _parcels(made) if BUCKET in made.schema.names else [(0, _packed(made))]
            for bucket, parcel in parcels:  # one by one: what is sent at once must fit Arrow's offsets
                bounds = pa.py_buffer(np.array([0, parcel.size], np.int32))
                column = pa.Array.from_buffers(pa.binary(), 1, [None, bounds, parcel])
                yield pa.RecordBatch.from_arrays([pa.array([bucket], pa.int32()), column], schema=schema)

    return run


def _parcels(records: pa.RecordBatch) -> Iterator[tuple[int, pa.Buffer]]:
    bucket = records.column(BUCKET).to_numpy()
    own = records.drop_columns([BUCKET])
    count = int(bucket.max()) + 1
    ordered = own.take(pa.array(stable_order(bucket, count)))
    ends = np.cumsum(np.bincount(bucket, minlength=count))
    rows = max(1, LARGEST * records.num_rows // max(1, own.nbytes))
    start = 0
    for number, end in enumerate(ends.tolist()):
        while start < end:
            stop = min(end, start + rows)
            yield number, _packed(ordered.slice(start, stop - start))
            start = stop


def _packed(records: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema) as writer:
        writer.write_batch(records)
    return sink.getvalue()


def opened(parcel: pa.BinaryScalar) -> pa.Table:
    """What was in a parcel that came."""
    return pa.ipc.open_stream(parcel.as_buffer()).read_all()
