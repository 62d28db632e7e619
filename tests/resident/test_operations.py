"""What expressions compute, where only some values are wrong."""

import pyarrow as pa

from steelyard.resident.operations import decoded


def test_a_null_is_not_wrong_beside_bytes_that_are_no_text():
    column = pa.array([b"\xff", None, b"ok"])
    texts, wrong = decoded([column], pa.string())
    assert texts.to_pylist() == [None, None, "ok"]
    assert wrong.to_pylist() == [True, False, False]
    assert decoded([column.slice(1)], pa.string())[1] is None
