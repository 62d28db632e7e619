"""Spark's xxhash64 over Arrow columns, against XXH64 written down plainly."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.kernels.xxhash import SPARK_SEED, spark_hash

MASK = 2**64 - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5

few = settings(deadline=None, max_examples=60)


def rotated(value: int, bits: int) -> int:
    value &= MASK
    return (value << bits | value >> (64 - bits)) & MASK


def lane(accumulator: int, word: int) -> int:
    return rotated(accumulator + word * P2, 31) * P1 & MASK


def xxh64(data: bytes, seed: int) -> int:
    """XXH64 as its specification tells it, over unbounded integers."""
    rest = data
    if len(data) >= 32:
        lanes = [seed + P1 + P2, seed + P2, seed, seed - P1]
        while len(rest) >= 32:
            lanes = [lane(a, word) for a, word in zip(lanes, struct.unpack("<4Q", rest[:32]), strict=True)]
            rest = rest[32:]
        mixed = sum(rotated(a, bits) for a, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for a in lanes:
            mixed = ((mixed ^ lane(0, a)) * P1 + P4) & MASK
    else:
        mixed = seed + P5
    mixed = (mixed + len(data)) & MASK
    while len(rest) >= 8:
        mixed = (rotated(mixed ^ lane(0, int.from_bytes(rest[:8], "little")), 27) * P1 + P4) & MASK
        rest = rest[8:]
    if len(rest) >= 4:
        mixed = (rotated(mixed ^ (int.from_bytes(rest[:4], "little") * P1 & MASK), 23) * P2 + P3) & MASK
        rest = rest[4:]
    for byte in rest:
        mixed = rotated(mixed ^ (byte * P5 & MASK), 11) * P1 & MASK
    mixed = (mixed ^ mixed >> 33) * P2 & MASK
    mixed = (mixed ^ mixed >> 29) * P3 & MASK
    return mixed ^ mixed >> 32


def expected(*fields: bytes | None, seed: int = SPARK_SEED) -> int:
    """What Spark gives for a row: each column's bytes with the hash so far as seed, nulls passed over."""
    for field in fields:
        seed = seed if field is None else xxh64(field, seed)
    return seed - 2**64 if seed >= 2**63 else seed


def four(value: int | None) -> bytes | None:
    return None if value is None else value.to_bytes(4, "little", signed=True)


def eight(value: int | None) -> bytes | None:
    return None if value is None else value.to_bytes(8, "little", signed=True)


def maybe(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(st.one_of(st.none(), values), max_size=12)


@pytest.mark.parametrize(
    ("data", "value"), [(b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"abc", 0x44BC2CF5AD770999)]
)
def test_the_plain_twin_gives_the_published_values(data, value):
    assert xxh64(data, 0) == value


def test_the_example_of_sparks_documentation():
    """`SELECT xxhash64('Spark', array(123), 2)`, where an array is hashed as its elements."""
    row = pa.array([{"a": "Spark", "b": 123, "c": 2}], pa.struct([("a", "string"), ("b", "int32"), ("c", "int32")]))
    assert spark_hash(row).tolist() == [5602566077635097486]


@few
@given(data=st.data(), bits=st.sampled_from([8, 16, 32, 64]))
def test_integers_are_hashed_in_four_bytes_and_longs_in_eight(data, bits):
    values = data.draw(maybe(st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)))
    packed = eight if bits == 64 else four
    hashes = spark_hash(pa.array(values, getattr(pa, f"int{bits}")()))
    assert hashes.tolist() == [expected(packed(value)) for value in values]


@few
@given(values=maybe(st.text(max_size=100)), kind=st.sampled_from([pa.string(), pa.large_string(), pa.string_view()]))
def test_strings_are_hashed_by_their_utf8(values, kind):
    hashes = spark_hash(pa.array(values, kind))
    assert hashes.tolist() == [expected(None if text is None else text.encode()) for text in values]


@few
@given(values=maybe(st.binary(max_size=100)), kind=st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]))
def test_binaries_are_hashed_by_their_bytes(values, kind):
    assert spark_hash(pa.array(values, kind)).tolist() == [expected(value) for value in values]


def test_every_length_of_bytes_is_hashed_right():
    values = [bytes(range(length)) for length in range(101)]
    assert spark_hash(pa.array(values)).tolist() == [expected(value) for value in values]
    for width in (1, 33):
        fixed = pa.array([value * width for value in (b"x", b"\xff")], pa.binary(width))
        assert spark_hash(fixed).tolist() == [expected(b"x" * width), expected(b"\xff" * width)]


@few
@given(values=maybe(st.booleans()))
def test_booleans_are_hashed_as_integers(values):
    hashes = spark_hash(pa.array(values, pa.bool_()))
    assert hashes.tolist() == [expected(None if value is None else four(int(value))) for value in values]


def java_bits(value: float, code: str) -> bytes:
    """Java's doubleToLongBits, after Spark made -0.0 the same as 0.0."""
    if value != value:
        return {"<d": b"\0\0\0\0\0\0\xf8\x7f", "<f": b"\0\0\xc0\x7f"}[code]
    return struct.pack(code, value + 0.0)


@few
@given(values=maybe(st.floats()))
def test_doubles_are_hashed_by_javas_bits(values):
    hashes = spark_hash(pa.array(values, pa.float64(), from_pandas=False))
    assert hashes.tolist() == [expected(None if value is None else java_bits(value, "<d")) for value in values]


@few
@given(values=maybe(st.floats(width=32)))
def test_floats_are_hashed_by_javas_bits(values):
    hashes = spark_hash(pa.array(values, pa.float32(), from_pandas=False))
    assert hashes.tolist() == [expected(None if value is None else java_bits(value, "<f")) for value in values]


def test_zeros_are_one_key_and_so_are_nans():
    for width, bits in (
        (np.float64, [0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 5]),
        (np.float32, [0x7FC00000, 0xFFC00001]),
    ):
        nans = np.array(bits, f"u{width().itemsize}").view(width)
        assert len(set(spark_hash(pa.array(nans, from_pandas=False)).tolist())) == 1
        assert len(set(spark_hash(pa.array(np.array([0.0, -0.0], width))).tolist())) == 1


@few
@given(values=maybe(st.dates()))
def test_dates_are_hashed_as_days(values):
    days = [None if value is None else (value - dt.date(1970, 1, 1)).days for value in values]
    for kind in (pa.date32(), pa.date64()):
        assert spark_hash(pa.array(values, kind)).tolist() == [expected(four(day)) for day in days]


@few
@given(values=maybe(st.integers(-(10**12), 10**12)), zone=st.sampled_from([None, "UTC", "Europe/Paris"]))
def test_timestamps_and_durations_are_hashed_as_microseconds(values, zone):
    micros = [expected(eight(value)) for value in values]
    nanos = [None if value is None else value * 1000 for value in values]
    for kind, numbers in (
        (pa.timestamp("us", zone), values),
        (pa.timestamp("ns", zone), nanos),
        (pa.duration("us"), values),
        (pa.duration("ns"), nanos),
    ):
        assert spark_hash(pa.array(numbers, pa.int64()).cast(kind)).tolist() == micros
    seconds = spark_hash(pa.array(values, pa.int64()).cast(pa.timestamp("s", zone)))
    assert seconds.tolist() == [expected(eight(None if value is None else value * 1_000_000)) for value in values]


@few
@given(values=maybe(st.integers(-(10**18) + 1, 10**18 - 1)))
def test_decimals_of_up_to_18_digits_are_hashed_as_longs(values):
    column = pa.array([None if n is None else Decimal(n) / 100 for n in values], pa.decimal128(18, 2))
    assert spark_hash(column).tolist() == [expected(eight(n)) for n in values]
    assert spark_hash(column[1:]).tolist() == [expected(eight(n)) for n in values[1:]]


def test_wider_decimals_are_hashed_by_the_fewest_bytes_of_their_digits():
    digits = [0, 127, 128, -128, -129, 255, 256, -1, 10**37, -(10**37)]
    least = [b"\0", b"\x7f", b"\0\x80", b"\x80", b"\xff\x7f", b"\0\xff", b"\1\0", b"\xff"]
    least += [n.to_bytes(16, "big", signed=True) for n in digits[-2:]]
    column = pa.array([None, *map(Decimal, digits)], pa.decimal128(38, 0))
    assert spark_hash(column).tolist() == [SPARK_SEED, *(expected(part) for part in least)]


ROWS = st.lists(
    st.one_of(
        st.none(),
        st.fixed_dictionaries(
            {
                "name": st.one_of(st.none(), st.text(max_size=40)),
                "number": st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
                "at": st.one_of(st.none(), st.fixed_dictionaries({"long": st.integers(-(2**63), 2**63 - 1)})),
            }
        ),
    ),
    max_size=12,
)
ROW_TYPE = pa.struct([("name", pa.string()), ("number", pa.int32()), ("at", pa.struct([("long", pa.int64())]))])


def hash_of_row(row: dict | None) -> int:
    if row is None:
        return SPARK_SEED
    name, at = row["name"], row["at"]
    return expected(
        None if name is None else name.encode(), four(row["number"]), None if at is None else eight(at["long"])
    )


@few
@given(rows=ROWS, first=st.integers(0, 5))
def test_structs_are_hashed_field_by_field_also_where_sliced(rows, first):
    column = pa.array(rows, ROW_TYPE)
    assert spark_hash(column).tolist() == [hash_of_row(row) for row in rows]
    assert spark_hash(column[first:]).tolist() == [hash_of_row(row) for row in rows[first:]]


@few
@given(values=maybe(st.text(max_size=40)), first=st.integers(0, 6), count=st.integers(0, 6))
def test_a_column_is_hashed_the_same_whole_sliced_encoded_and_in_chunks(values, first, count):
    whole = [expected(None if text is None else text.encode()) for text in values]
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        column = pa.array(values, kind)
        assert spark_hash(column).tolist() == whole
        assert spark_hash(column.slice(first, count)).tolist() == whole[first : first + count]
    plain = pa.array(values, pa.string())
    assert spark_hash(pa.chunked_array([plain[:first], plain[first:]], pa.string())).tolist() == whole


def test_a_null_leaves_the_hash_as_it_is():
    for kind in (pa.string(), pa.int64(), pa.float32(), pa.bool_(), pa.null(), pa.decimal128(30, 2), ROW_TYPE):
        assert spark_hash(pa.nulls(2, kind)).tolist() == [SPARK_SEED, SPARK_SEED]
        assert spark_hash(pa.nulls(0, kind)).tolist() == []


def test_the_column_is_left_as_it_was():
    values = np.array([-0.0, np.nan, 1.0])
    spark_hash(pa.array(values, from_pandas=False))
    assert np.signbit(values[0])


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.uint64(), pa.map_(pa.string(), pa.int64())])
def test_a_type_that_cannot_be_a_key_is_named(kind):
    with pytest.raises(TypeError, match=r"keys of Arrow type .* cannot be hashed"):
        spark_hash(pa.nulls(1, kind))


def test_a_dictionary_is_hashed_by_value_and_routed_by_code():
    words = pa.array(["b", "a", None, "b", "c", ""])
    encoded = words.dictionary_encode()
    assert spark_hash(encoded).tolist() == spark_hash(words).tolist()
    assert spark_hash(encoded.slice(2, 3)).tolist() == spark_hash(words).tolist()[2:5]
    assert spark_hash(pa.chunked_array([encoded, encoded])).tolist() == spark_hash(words).tolist() * 2
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["x", "x", "y"]))
    assert spark_hash(twice).tolist() == spark_hash(pa.array(["x", "x", "y"])).tolist()
    assert len(spark_hash(pa.array([], pa.string()).dictionary_encode())) == 0
