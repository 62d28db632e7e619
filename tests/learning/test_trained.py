"""Files of trained policies: what is written comes back; what is damaged, foreign or of another version is refused."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from steelyard.core.errors import OptionError, StateError
from steelyard.learning import Network, Trained, generator, once_per_file

NETWORK = Network.drawn((3, 8, 2), generator(1, "net"))
MADE = Trained(
    "dqn",
    NETWORK.arrays("q"),
    shapes={"threads": 3, "operators": ["spout", "query"]},
    distribution={"setup": "cq-small", "rate": np.float64(1330.0)},
    options={"gamma": 0.99},
    metrics={"mean_ms": np.float32(1.5)},
    seed=11,
)
CONTENT = MADE.to_bytes()


def written_with(**changes):
    with np.load(io.BytesIO(CONTENT)) as opened:
        arrays = {name: opened[name] for name in opened.files}
    header = json.loads(arrays["header"].tobytes()) | changes
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    into = io.BytesIO()
    np.savez(into, **arrays)
    return into.getvalue()


def test_what_is_saved_comes_back(tmp_path):
    found = Trained.load(MADE.save(tmp_path / "new" / "policy.npz"), "dqn")
    assert (found.policy, found.seed, found.options) == ("dqn", 11, {"gamma": 0.99})
    assert found.distribution == {"setup": "cq-small", "rate": 1330.0}
    assert found.metrics == {"mean_ms": 1.5}
    again = Network.from_arrays("q", found.arrays)
    inputs = np.ones((4, 3), np.float32)
    assert np.array_equal(again(inputs), NETWORK(inputs))
    assert [one.name for one in (tmp_path / "new").iterdir()] == ["policy.npz"]


@settings(deadline=None, max_examples=150)
@given(at=st.integers(0, len(CONTENT) - 1), bits=st.integers(1, 255))
@example(at=0, bits=1)
def test_a_changed_byte_is_noticed_or_changes_nothing(at, bits):
    damaged = CONTENT[:at] + bytes([CONTENT[at] ^ bits]) + CONTENT[at + 1 :]
    try:
        found = Trained.from_bytes(damaged)
    except StateError:
        pass
    else:
        assert found.shapes == {"threads": 3, "operators": ["spout", "query"]}
        assert all(np.array_equal(found.arrays[name], MADE.arrays[name]) for name in MADE.arrays)
        assert found.arrays.keys() == MADE.arrays.keys()


@settings(deadline=None, max_examples=40)
@given(length=st.integers(0, len(CONTENT) - 1))
def test_a_file_that_was_cut_off_is_refused(length):
    with pytest.raises(StateError, match="no trained policy, or is damaged"):
        Trained.from_bytes(CONTENT[:length])


def test_files_of_others_are_refused_in_a_sentence(tmp_path):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("a.txt", "hello")
    arrays = io.BytesIO()
    np.savez(arrays, a=np.ones(3))
    objects = io.BytesIO()
    np.savez(objects, header=np.array([{"a": 1}], dtype=object))
    foreign = [b"", b"{}", pickle.dumps({"a": 1}), archive.getvalue(), arrays.getvalue(), objects.getvalue()]
    for number, content in enumerate(foreign):
        path = tmp_path / str(number)
        path.write_bytes(content)
        with pytest.raises(StateError, match=f"{number} is no trained policy, or is damaged: train it again"):
            Trained.load(path)
    with pytest.raises(StateError, match=r"no trained policy can be read from .*absent"):
        Trained.load(tmp_path / "absent")


def test_another_version_is_refused():
    with pytest.raises(StateError, match="format 99, and this is a Steelyard of format 1"):
        Trained.from_bytes(written_with(format=99))


def test_a_header_that_does_not_fit_the_weights_is_refused():
    with pytest.raises(StateError, match="lacks weights"):
        Trained.from_bytes(written_with(arrays=["q.0.weights"]))
    with pytest.raises(StateError, match="header that lacks something"):
        Trained.from_bytes(written_with(policy=None))
    with pytest.raises(StateError, match="no trained policy"):
        Trained.from_bytes(written_with(mark="something else"))


def test_a_policy_of_another_kind_or_topology_is_refused(tmp_path):
    path = MADE.save(tmp_path / "policy.npz")
    with pytest.raises(StateError, match="was trained for 'dqn', not for 'extra'"):
        Trained.load(path, "extra")
    found = Trained.load(path)
    found.require(threads=3, operators=("spout", "query"))
    with pytest.raises(StateError, match="trained for threads=3, and here it is 4"):
        found.require(threads=4)
    with pytest.raises(StateError, match="trained for machines=None, and here it is 10"):
        found.require(machines=10)


def test_layers_that_do_not_fit_each_other_are_refused():
    arrays = NETWORK.arrays("q")
    for broken in (
        {name: one for name, one in arrays.items() if name != "q.1.offsets"},
        arrays | {"q.1.weights": np.ones((9, 2), np.float32)},
        arrays | {"q.0.weights": np.full((3, 8), np.nan, np.float32)},
    ):
        with pytest.raises(StateError, match="does not fit the others"):
            Network.from_arrays("q", broken)
    with pytest.raises(StateError, match="no network 'actor'"):
        Network.from_arrays("actor", arrays)


def test_objects_are_never_written():
    with pytest.raises(OptionError, match="cannot be kept"):
        Trained("dqn", {"a": np.array([object()])}).to_bytes()
    with pytest.raises(OptionError, match="cannot stand in the header"):
        Trained("dqn", {}, options={"a": object()}).to_bytes()


def test_what_is_made_of_a_file_is_remembered_until_another_is_written(tmp_path):
    asked = []

    @once_per_file
    def load(path):
        asked.append(path)
        return Trained.load(path).seed

    path = tmp_path / "policy.npz"
    with pytest.raises(StateError, match="no trained policy can be read"):
        load(path)
    MADE.save(path)
    assert [load(path), load(path)] == [11, 11]
    assert len(asked) == 2, "one of them in vain"
    replace(MADE, seed=12).save(path)
    assert load(path) == 12
