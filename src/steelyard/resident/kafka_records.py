"""Records of Kafka as rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

RECORDS = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestampType": pa.int32(),
    }
)
"""The columns of records, as Spark's source has them."""


def batch_of(messages: list[Any]) -> pa.RecordBatch:
    """Records of one partition as a batch. The client gives them one by one: only this looks at each of them."""
    found = [(message.key(), message.value(), message.offset(), message.timestamp()) for message in messages]
    keys, values, offsets, stamps = zip(*found, strict=True)
    kinds, times = zip(*stamps, strict=True)
    first, count = messages[0], len(messages)
    return pa.record_batch(
        [
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.repeat(pa.scalar(first.topic(), pa.string()), count),
            pa.repeat(pa.scalar(first.partition(), pa.int32()), count),
            pa.array(offsets, pa.int64()),
            pc.multiply(pa.array(times, pa.int64()), 1000).cast(RECORDS.field("timestamp").type),
            pc.subtract(pa.array(kinds, pa.int32()), 1),  # Spark counts from 0: when it was created
        ],
        schema=RECORDS,
    )
