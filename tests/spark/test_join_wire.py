"""How the tasks of a similarity join hand records to each other through Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.similarity import metric
from steelyard.spark import join_wire
from steelyard.spark.join_program import JoinProgram

SENT = pa.schema([("number", pa.int64()), ("record", pa.binary())])


def program(dimension: int) -> JoinProgram:
    return JoinProgram(metric("angular"), 0.1, True, None, 2, 2, dimension)


def sent(vectors: np.ndarray) -> list[pa.RecordBatch]:
    numbers = {"number": pa.array(np.arange(len(vectors)))}
    return list(join_wire.sent_batches(program(vectors.shape[1]), numbers, vectors, SENT))


@given(st.integers(1, 40), st.integers(1, 9), st.sampled_from([np.float32, np.float64]), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
def test_vectors_come_back_from_their_bytes(rows, dimension, kind, seed):
    vectors = np.random.default_rng(seed).normal(size=(2 * rows, dimension)).astype(kind)[::2]  # not in one piece
    table = pa.Table.from_batches(sent(vectors))
    back = join_wire.from_spark(program(dimension), table.column("record"))
    assert back.dtype == kind
    assert back.tolist() == vectors.tolist()
    cut = table.slice(rows // 3, max(1, rows // 2))  # as where a batch begins in the midst of its buffers
    part = join_wire.from_spark(program(dimension), cut.column("record"))
    assert part.tolist() == vectors[rows // 3 : rows // 3 + max(1, rows // 2)].tolist()


@pytest.mark.parametrize("most", [1, 48, 100, 1 << 20])
def test_no_batch_has_more_bytes_than_arrow_can_count(monkeypatch, most):
    monkeypatch.setattr(join_wire, "SENT_BYTES", most)
    vectors = np.random.default_rng(1).normal(size=(25, 3))
    batches = sent(vectors)
    assert all(batch.num_rows == 1 or batch.num_rows * 24 <= most for batch in batches)
    table = pa.Table.from_batches(batches)
    assert table["number"].to_pylist() == list(range(25))
    assert join_wire.from_spark(program(3), table.column("record")).tolist() == vectors.tolist()
