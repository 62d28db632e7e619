"""JSON documents as rows: what they hold, what they lack, and what is no document."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.json
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.resident.json_rows import JsonRows, Lines

SCHEMA = pa.schema({"k": pa.string(), "n": pa.int64(), "x": pa.float64(), "at": pa.timestamp("us", "UTC")})
NOTHING = dict.fromkeys(SCHEMA.names)

documents = st.fixed_dictionaries(
    {},
    optional={
        "k": st.one_of(st.none(), st.text(max_size=5)),
        "n": st.integers(-(2**63), 2**63 - 1),
        "x": st.floats(allow_nan=False, allow_infinity=False),
        "other": st.lists(st.integers(), max_size=2),
    },
)
broken = st.sampled_from([b"{", b"", b"[1]", b'{"n": "many"}', b"nothing", b'{} {"k": 2}', None])


def read(values, zone="UTC"):
    return JsonRows(SCHEMA, zone)(pa.array(values, pa.binary())).to_pylist()


@given(st.lists(st.one_of(documents, broken), max_size=12))
@settings(max_examples=40)
def test_each_document_is_a_row_and_what_is_none_is_a_row_of_nulls(given_documents):
    values = [json.dumps(one).encode() if isinstance(one, dict) else one for one in given_documents]
    known = [
        {name: one.get(name) for name in SCHEMA.names} if isinstance(one, dict) else NOTHING for one in given_documents
    ]
    assert read(values) == known


@pytest.mark.parametrize("every", [1, 10, 700])
def test_documents_of_other_types_are_read_right_with_few_starts_of_arrows_reader(every, monkeypatch):
    starts, start = [], pyarrow.json.read_json
    monkeypatch.setattr(pyarrow.json, "read_json", lambda *given, **how: starts.append(1) or start(*given, **how))
    values = [json.dumps({"k": n if n % every == 0 else f"k{n}", "n": n}).encode() for n in range(2000)]
    known = [{**NOTHING, "k": str(n) if n % every == 0 else f"k{n}", "n": n} for n in range(2000)]
    assert read(values) == known
    assert 1 < len(starts) < (12 if every <= 10 else 60)


@pytest.mark.parametrize(
    ("text", "hours"),
    [("2024-05-01T12:00:00Z", 12), ("2024-05-01T12:00:00.000+02:00", 10), ("2024-05-01 12:00:00", 10)],
)
def test_times_without_a_zone_are_of_the_zone_that_is_said(text, hours):
    found = read([json.dumps({"at": text}).encode(), b'{"at": "soon"}'], zone="Europe/Paris")
    assert [row["at"] for row in found] == [datetime(2024, 5, 1, hours, tzinfo=UTC), None]


def test_a_document_may_have_several_lines():
    assert read([b'{"k":\n"a"}', b'{"k": "b"}'])[0]["k"] == "a"


@given(
    st.lists(st.binary(max_size=4), max_size=12),
    st.integers(1, 5),
    st.booleans(),
)
def test_lines_are_read_once_each_in_any_steps(tmp_path_factory, lines, rows, ended):
    path = tmp_path_factory.mktemp("lines") / "file"
    text = b"\n".join(lines) + b"\n" * ended
    path.write_bytes(text)
    reader, offset, found, done = Lines((str(path),)), 0, [], False
    while not done:
        batch, offset, done = reader.read(str(path), offset, rows)
        found += batch.column("value").to_pylist()
    expected = [line for line in text.splitlines() if line.strip(b" \t")]  # \r and \r\n end lines too
    assert [line.rstrip(b"\r\n") for line in found] == expected
