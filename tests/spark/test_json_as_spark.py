"""JSON documents of every kind, for every type: the resident engine reads them as Spark does."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from steelyard.resident.json_rows import JsonRows, Lines

ZONE = "America/New_York"
SCHEMA = (
    "k string, n bigint, i int, s smallint, y tinyint, b boolean, x double, f float, c decimal(10,2), "
    "e decimal(38,18), d date, t timestamp, z timestamp_ntz, bin binary"
)
# fmt: off
VALUES = {
    "k": [
        '"a"', '""', '1', '1.50', '1e3', 'true', 'null', '{"a": 1,  "b":[1, 2]}', '[1, "x"]',
        '"\\u00fc\\ud83d\\ude00"', '"\\ud83d"', '"a\\nb"', "'single'", '1.0E400', '-0', '"\\q"', 'NaN', 'Infinity',
        '{"b":1.10,"a":"\\u00fc"}', '9223372036854775808123', '1.10', '1E5', '[1,  2]', '{"a" : 1.0}', '"x"',
        '{"a":"\\u00fc\\/"}', '[1.50, 1e3, "\\u00fc", null,true]', '0.001', '0.0001', '1234567.0', '12345678.0',
        '1.0E10', '1e-5', '123456789.123', '{"a":"\\n\\"\\\\\\u0001é"}', '100', '1e2',
    ],
    "n": [
        '1', '-1', '1.0', '1e2', '"1"', '"x"', '9223372036854775807', '9223372036854775808', '-9223372036854775808',
        'true', 'null', '""', '01', '+1', '-0', '{}', '[]', '-', '1 ',
    ],
    "i": [
        '1', '2147483648', '-2147483648', '"1"',
    ],
    "s": [
        '1', '32768', '-32768', '40000',
    ],
    "y": [
        '1', '128', '-128', '300',
    ],
    "b": [
        'true', 'false', '"true"', '1', '0', 'null', '""', 'TRUE',
    ],
    "x": [
        '1', '1.5', '-0.0', '1e400', '"NaN"', '"Infinity"', '"-Infinity"', '"+INF"', '"INF"', '"-INF"', 'NaN',
        'Infinity', '-Infinity', '+Infinity', '"1.5"', '""', '1e-400', 'true', '"nan"',
        '123456789012345678901234567890', 'INF', '-INF', '+INF', '0x10', '.5', '5.', '4.9E-324',
    ],
    "f": [
        '1.1', '1e39', '3.4028235e38', '16777217', '"NaN"', '0.1', '1e-46', '"-INF"',
        '123456789012345678901234567890',
    ],
    "c": [
        '1', '1.005', '1.015', '99999999.99', '99999999.999', '100000000', '"1.5"', '"x"', '-1.005', '1e3', '1e-3',
        'null', '""', '" 1"', '"1e3"', '"1,000"', 'NaN', '1.5E2', 'true', '"1,2,3"', '"+5"', '".5"', '"5."',
        '"1e400"', '"-"', '"1_0"', '"٣"', '1e400', '-0.005', '0.004999', '"0x1"', '"1d"', '1e-400', '"NaN"',
    ],
    "e": [
        '1', '12345678901234567890.123456789012345678', '123456789012345678901', '0.1234567890123456789', '"1.5"',
        '1e19', '1e20',
    ],
    "d": [
        '"2024-05-01"', '"2024-5-1"', '"2024"', '"2024-05"', '"2024-05-01T12:00:00"', '"2024-05-01 12:00"',
        '"2024-02-30"', '"x"', '""', '" 2024-05-01 "', '1', '"0001-01-01"', '"10000-01-01"', '"-0001-01-01"',
        '"+2024-01-01"', '"2024-05-01abc"', 'null', '"1582-10-10"', '"9999-12-31"', '19844', '"2024-05-01T"',
        '"2024-13-01"', '"0000-01-01"', '"20240501"', '"2024/05/01"', '"today"', '"epoch"', '"1234567-01-01"',
        '"12345678-01-01"', '"2024-05-01 x"', '"2024-05 x"', '"2024-05-01Tx"', '"-5"', '"+5"', '"99999999999"',
        '" 5"', '"2024-"', '"2024-05-"', '"12345"', '"024-01-01"', '"5881580-07-11"', '"5881580-07-12"',
    ],
    "t": [
        '"2024-05-01T12:00:00Z"', '"2024-05-01T12:00:00"', '"2024-05-01 12:00:00"', '"2024-05-01"', '"2024"',
        '"2024-05"', '"2024-05-01T12"', '"2024-05-01T12:00"', '"2024-05-01T12:00:00.1"',
        '"2024-05-01T12:00:00.123456789"', '"2024-05-01T12:00:00.1234567Z"', '"2024-03-10T02:30:00"',
        '"2024-11-03T01:30:00"', '"2024-05-01T12:00:00+02:00"', '"2024-05-01T12:00:00+0200"',
        '"2024-05-01T12:00:00+02"', '"2024-05-01T12:00:00+2"', '"2024-05-01T12:00:00 Europe/Paris"',
        '"2024-05-01T12:00:00Europe/Paris"', '"2024-05-01T12:00:00 UTC"', '"2024-05-01T12:00:00 GMT+2"',
        '"2024-05-01T12:00:00z"', '"T12:00:00"', '"12:00:00"', '"x"', '""', '" 2024-05-01T12:00:00 "', '1', '1.5',
        '1714564800', '-1', '"0001-01-01T00:00:00Z"', '"9999-12-31T23:59:59.999999Z"', '"10000-01-01T00:00:00Z"',
        '"2024-05-01T24:00:00"', '"2024-05-01T12:60:00"', '"2024-05-01T12:00:60"', '"2024-5-1T1:2:3"',
        '"2024-05-01T12:00:00."', '"2024-05-01T12:00:00,5"', '"1969-12-31T23:59:59.9999999Z"',
        '"1960-01-01T00:00:00"', '"1883-01-01T00:00:00"', '"2024-05-01T12:00:00.123456789012"', 'null',
        '"2024-05-01T12:00:00-18:01"', '"2024-05-01T12:00:00+02:00:30"', '"2024-05-01T12:00:00 +02:00"',
        '"2024-05-01  12:00:00"', '"2024-05-01t12:00:00"', '"1714564800"', '"20240501120000"',
        '"2024-02-30T00:00:00Z"', '"+2024-05-01T12:00:00Z"', '"2024-05-01T12:00:00.000Z"', 'true', '"2024-05-01T12Z"',
        '"2024-05-01Z"', '"2024-05-01 Z"', '"2024-05-01T12:00Z"', '"2024Z"', '"2024-05-01T12:00:00 EST"',
        '"2024-05-01T12:00:00 CST"', '"1582-10-10T00:00:00Z"', '"2024-11-03T01:30:00.5"',
        '"294247-01-10T04:00:54.775807Z"', '"-2024-05-01T12:00:00Z"', '"2024-05-01T"', '"2024-05-01 "', '"12:00"',
        '"T12:00"', '"12"', '"T12"', '"1:2"', '"2024-05T12:00:00"', '"2024 12:00:00"', '"2024-05-01T12:"',
        '"2024-05-01T12:00:"', '"2024-05-01T12:00:00.Z"', '"2024-05-01T12:00:00. UTC"', '"2024-05-01T12:00:00 "',
        '"-12:00"', '"2024-05-01T12:00:00.5 -3"', '"1234567-01-01"', '"123456-01-01"', '"12345-01-01T00:00:00"',
        '"02024-01-01"', '"2024--01"', '"2024-05-01TT12"', '"2024-05-01T123:00:00"', '"2024-05-01T12:00:00Z "',
        '"2024-05-01T12:00:00ZZ"', '"2024-05-01T12:00:00+02:00 "', '"2024-05-01T12:00:00 utc"',
        '"2024-05-01T12:00:00 UTC+2"', '"2024-05-01T12:00:00 UTC+02:30"', '"2024-05-01T12:00:00 GMT-3:5"',
        '"2024-05-01T12:00:00+18:00"', '"2024-05-01T12:00:00+1:5"', '"2024-05-01T12:00:00 America/Nowhere"',
        '"2024-05-01T12:00:00+020030"', '9300000000000', '-9300000000000', '"epoch"', '" "',
        '"2024-05-01T12:00:00.1+02:00"', '"2024-05-01T12:00:00.1234567+02:00"', '"2024-03-10T02:30:00.1234567"',
    ],
    "z": [
        '"2024-05-01T12:00:00"', '"2024-05-01T12:00:00Z"', '"2024-05-01T12:00:00+02:00"', '"2024-05-01"',
        '"2024-03-10T02:30:00"', '"2024-05-01T12:00:00.123456789"', '1', '"x"', '""', '"2024"',
        '"2024-05-01 12:00:00.1"', '" 2024-05-01 12:00:00 "', '"12:00"', '"T12:00"', '"2024-05-01T"', '"2024-05"',
        '"2024-05-01T12"', '"2024-05-01T12:00:00 UTC"',
    ],
    "bin": [
        '"YWJj"', '"YWI="', '"YWI"', '"x"', '""', '1', '"!!"', 'null', '"YW Jj"', '"YW\\nJj"', '"_-__"', '"YWJjYQ=="',
        '"xx"', '"xxx"', '"xxxx"', '"xxxxx"', '"xxxxxx"', '"x="', '"xx="', '"xx=="', '"xx==="', '"xx==yy"', '"="',
        '"!"', '"x!"', '"xxxx!"', '"xxxxx!"', '"xx=x"', '"xxx=x"', '"\\u0078"', '"xx-_"', '" xxxx"', '"xxxx "',
        '"xx  xx"',
    ],
}
"""Values of each column, as they are written."""
DOCUMENTS = [
    b'{', b'', b'  ', b'[]', b'[{"k": "arr", "n": 1}]', b'[{"k":"arr1"},{"k":"arr2"}]', b'null', b'1', b'"x"',
    b'{"k": "a"} {"k": "b"}', b'{"k": "a"} junk', b'{"k": "a"}x', b'{"k":"a","k":"b"}', b'{"K":"upper"}',
    b'{"k":"a",}', b'{k:"a"}', b"{'k':'a'}", b'{"k":"a" /*c*/}', b'{"k":"a"\t}', b'\t{"k":"tab"}', b'{"k":"a\tb"}',
    b'{"n":1,"k":"a"', b'{"zz":{"k":"inner"},"n":5}', b'{}', b'[1]', b'{"k": "a", "n": 01}',
    b'{"n":"bad","k":"a","x":1.5}', b'{"n":1,"n":"bad"}', b'{"n":"bad","n":1}', b'{"k":"x\\u0000y"}', b'{"k":"a"}\r',
    b'\xef\xbb\xbf{"k":"bom"}', b'{"n":1}}', b'{"k":null,"k":"b"}', b'{"k":"b","k":null}', b'{"k": "a" "n": 1}',
    b'{"x": 1.5.5}', b'[', b']', b'[{"k":"a"}', b'[{"k":"a"}]x', b'[null]', b'{"n": 1e-1}', b'[[{"k":"a"}]]',
    b'[{"k":"ok"}, 1]', b'{"k": "a\xffb"}', b'{"z9":"\xff","k":"ok"}', b'{"k":"a\xc3"}', b'{"k":"a","zz":"a\tb"}',
    b'[{"w": 1.50}, {"w": [1,  2]}]', b'{"zz":{"y":[1,{"k":"in"}]},"k":"out"}', b'{"w":{"w":1},"w": 2.50}',
    b'{"k":"a"} {"k":"b"}',
]
"""Documents that are odd as a whole."""
# fmt: on


def documents():
    beside = {name: '"k": "kept"' if name != "k" else '"n": 7' for name in VALUES}
    made = [f'{{"{name}": {one}, {beside[name]}}}'.encode() for name, some in VALUES.items() for one in some]
    return made + DOCUMENTS


def comparable(table):
    """Rows in which dates and times are numbers, since Python has not all of them, and a NaN equals a NaN."""
    columns = []
    for name in table.schema.names:
        column = table.column(name)
        if pa.types.is_timestamp(column.type) or pa.types.is_date32(column.type):
            column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
        columns.append([repr(value) for value in column.to_pylist()])
    return list(zip(*columns, strict=True))


@pytest.fixture
def new_york(spark):
    """The session in a time zone of its own."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


def read_by(reader, expected):
    """The reader in the types that Spark gave."""
    kinds = [pa.timestamp("us", kind.tz and "UTC") if pa.types.is_timestamp(kind) else kind for kind in expected.types]
    return reader(pa.schema(list(zip(expected.names, kinds, strict=True))), ZONE)


@pytest.mark.spark
def test_documents_are_read_as_from_json_reads_them(new_york):
    given = documents()
    frame = new_york.createDataFrame([(bytearray(one),) for one in given], "value binary").coalesce(1)
    expected = frame.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("v")).select("v.*").toArrow()
    reader = read_by(JsonRows, expected.schema)
    found = comparable(reader(pa.array(given, pa.binary())))
    alone = [row for one in given for row in comparable(reader(pa.array([one], pa.binary())))]  # by Arrow, if it can
    for document, ours, own, sparks in zip(given, found, alone, comparable(expected), strict=True):
        assert ours == own == sparks, document


@pytest.mark.spark
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_of_files_are_read_as_spark_reads_them(new_york, tmp_path, end):
    path = tmp_path / "lines.json"
    path.write_bytes((end + end + b" \t" + end).join(documents()))
    expected = new_york.read.schema(SCHEMA).json(str(path)).toArrow()
    lines = Lines((str(path),)).read(str(path), 0, 1 << 20).batch.column("value")
    reader = read_by(JsonRows, expected.schema)
    found = [row for at in range(len(lines)) for row in comparable(reader.of_lines(lines[at : at + 1]))]
    for number, (ours, sparks) in enumerate(zip(found, comparable(expected), strict=True)):
        assert ours == sparks, number
    at_once = comparable(reader.of_lines(lines))
    assert sorted(at_once) == sorted(found)
