"""Trainings from beginning to file: on a user's counts, anew, stopped, gone on with, and from the command line."""

from __future__ import annotations

import signal

import numpy as np
import pytest

from steelyard.cli import main
from steelyard.core import StateError
from steelyard.learning import Trained, libraries
from steelyard.partition.learned import courses
from steelyard.partition.learned.actions import level
from steelyard.partition.learned.courses import ANEW, follow, half_of, train_anew, train_on
from steelyard.partition.learned.options import Training
from steelyard.partition.learned.training import Trainer
from steelyard.partition.learned.weights import SHIPPED, load, unpacked
from steelyard.partition.partly import PartLy

pytest.importorskip("jax")
TINY = Training(actions=3, keys=4, blocks=3, batches=32, hidden=32, imitated=4, minibatches=2)


@pytest.fixture
def counts(tmp_path):
    """A file of five batches of few keys."""
    path = tmp_path / "counts.csv"
    rows = [f"{batch},k{key},{1 + key * batch}" for batch in range(5) for key in range(4)]
    path.write_text("\n".join(["batch,key,rows", *rows]))
    return path


@pytest.fixture
def few_updates(monkeypatch):
    monkeypatch.setattr(courses, "UPDATES", 3)


def stopping(after):
    """A report that stops as Ctrl-C does."""

    def report(at):
        if at.update == after:
            raise KeyboardInterrupt

    return report


def test_what_is_stopped_and_gone_on_with_ends_with_the_same_weights(tmp_path):
    whole = follow(Trainer(TINY), tmp_path / "whole.npz", 8, np.inf, lambda at: None, resume=False)
    with pytest.raises(KeyboardInterrupt):
        follow(Trainer(TINY), tmp_path / "own.npz", 8, np.inf, stopping(3), resume=False)
    steps = []
    again = follow(Trainer(TINY), tmp_path / "own.npz", 8, np.inf, lambda at: steps.append(at.update), resume=True)
    assert steps == [4, 5, 6, 7, 8]
    for one, other in zip(whole.actor, again.actor, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
    with pytest.raises(StateError, match="no trained policy can be read"):
        follow(Trainer(TINY), tmp_path / "none.npz", 8, np.inf, lambda at: None, resume=True)


def test_a_training_that_runs_is_saved_every_so_often(tmp_path, monkeypatch):
    monkeypatch.setattr(courses, "SAVE_SECONDS", 0.0)
    saved = []

    def report(at):
        if at.update > 1:
            again = Trainer(TINY)
            again.resume(half_of(tmp_path / "own.npz"))
            saved.append(again.update)

    follow(Trainer(TINY), tmp_path / "own.npz", 4, np.inf, report, resume=False)
    assert saved == [1, 2, 3]


def stopped_at_once(updates, minutes):
    raise KeyboardInterrupt


def diverging(monkeypatch, at):
    """The weights of this update are none, and what it costs is found before."""
    run = Trainer._by_model

    def once(trainer, number, batches, key):
        found = run(trainer, number, batches, key)
        if number == at:
            jax = libraries().jax
            trainer.weights = jax.tree_util.tree_map(lambda one: one * np.nan, trainer.weights)
        return found

    monkeypatch.setattr(Trainer, "_by_model", once)


@pytest.mark.parametrize("every", [0.0, np.inf])
def test_weights_of_a_training_that_diverges_are_not_saved_over_good_ones(tmp_path, monkeypatch, every):
    monkeypatch.setattr(courses, "SAVE_SECONDS", every)
    with pytest.raises(KeyboardInterrupt):
        follow(Trainer(TINY), tmp_path / "own.npz", 8, np.inf, stopping(2), resume=False)
    diverging(monkeypatch, 3)
    with pytest.raises(StateError, match="diverged at update 3"):
        follow(Trainer(TINY), tmp_path / "own.npz", 8, np.inf, lambda at: None, resume=True)
    again = Trainer(TINY)
    again.resume(half_of(tmp_path / "own.npz"))
    assert again.finite
    assert again.update == (3 if every == 0.0 else 2)


def test_the_half_of_an_earlier_training_is_not_taken_for_this_ones(tmp_path):
    out = tmp_path / "own.npz"
    follow(Trainer(TINY), out, 2, np.inf, lambda at: None, resume=False)
    assert half_of(out).exists()
    stopped = Trainer(TINY)
    stopped.run = stopped_at_once
    with pytest.raises(KeyboardInterrupt):
        follow(stopped, out, 2, np.inf, lambda at: None, resume=False)
    assert not half_of(out).exists()


def test_anew_begins_with_nothing_and_makes_a_file_of_the_packages_kind(tmp_path):
    out = tmp_path / "anew.npz"
    found = train_anew(out, lambda at: None, seed=5, updates=4, options=TINY)
    made, shipped = Trained.load(out, "partly"), Trained.load(SHIPPED, "partly")
    assert {name: array.shape for name, array in made.arrays.items()} == {
        name: array.shape for name, array in shipped.arrays.items()
    }
    assert (made.shapes, made.metrics.keys(), made.seed) == (shipped.shapes, shipped.metrics.keys(), 5)
    assert made.distribution.keys() == shipped.distribution.keys()
    assert PartLy(weights=str(out)).fallbacks == 0
    assert found.unseen
    assert found.after == made.metrics["mpi_vs_prompt"]
    again = train_anew(tmp_path / "again.npz", lambda at: None, seed=5, updates=4, options=TINY)
    assert again.after == found.after
    assert again.curve.values.tolist() == found.curve.values.tolist()


def test_anew_is_what_the_package_says_of_its_network():
    shipped = Trained.load(SHIPPED)
    told = ANEW.to_dict()
    assert {name: told[name] for name in shipped.options} == dict(shipped.options)
    assert shipped.metrics["updates"] == courses.ANEW_UPDATES
    assert shipped.distribution["keys"].startswith("4 to 96")


def test_training_on_counts_is_judged_on_batches_that_it_did_not_see(counts, tmp_path, few_updates):
    found = train_on(counts, tmp_path / "own.npz", 3, 5.0, 0, lambda at: None)
    assert (found.batches, found.unseen, len(found.curve.values)) == (1, True, 3)
    expected = load(tmp_path / "own.npz")
    half = Trained.load(half_of(tmp_path / "own.npz"))
    kept = unpacked(half.arrays, level(half.options["actions"]).kinds) if found.kept else load(SHIPPED)
    np.testing.assert_array_equal(expected.actor[0][0], kept.actor[0][0])


def test_the_command_says_what_it_judged_on_draws_the_curve_and_goes_on(counts, tmp_path, few_updates, capsys):
    out = tmp_path / "own.npz"
    words = ["train", "partly", "--on", str(counts), "--blocks", "3", "--out", str(out)]
    assert main(words) == 0
    assert "of the one batch that it did not see" in capsys.readouterr().out
    assert out.with_suffix(".png").stat().st_size > 0
    assert main([*words, "--resume"]) == 0
    capsys.readouterr()
    counts.write_text("key,rows\na,9\nb,4\nc,3\nd,1\n")
    assert main([*words, "--resume"]) == 1
    assert "is of a training on other counts" in capsys.readouterr().err
    assert main(words) == 0
    assert "of the one batch that it learnt from, as there is no other" in capsys.readouterr().out


def test_ctrl_c_stops_between_two_updates_and_can_be_gone_on_with(counts, tmp_path, few_updates, capsys, monkeypatch):
    out = tmp_path / "own.npz"
    before = signal.getsignal(signal.SIGINT)
    words = ["train", "partly", "--on", str(counts), "--blocks", "3", "--out", str(out)]
    with monkeypatch.context() as patched:
        run = Trainer._by_model

        def interrupted(trainer, number, batches, key):
            if number == 1:
                signal.raise_signal(signal.SIGINT)
            return run(trainer, number, batches, key)

        patched.setattr(Trainer, "_by_model", interrupted)
        assert main(words) == 130
    said = capsys.readouterr().out
    assert "stopping after this step" in said
    assert "the same command with --resume goes on" in said
    assert signal.getsignal(signal.SIGINT) is before
    assert not out.exists()
    assert len(Trained.load(half_of(out)).arrays["costs"]) == 2
    assert main([*words, "--resume"]) == 0
    assert len(Trained.load(half_of(out)).arrays["costs"]) == 3


def test_ctrl_c_while_the_last_plans_are_judged_is_heeded(counts, tmp_path, few_updates, capsys, monkeypatch):
    judge, judged = courses.against_prompt, []

    def interrupted(*given):
        judged.append(given)
        if len(judged) == 2:
            signal.raise_signal(signal.SIGINT)
        return judge(*given)

    monkeypatch.setattr(courses, "against_prompt", interrupted)
    words = ["train", "partly", "--on", str(counts), "--blocks", "3", "--out", str(tmp_path / "own.npz")]
    assert main(words) == 130
    said = capsys.readouterr().out
    assert "stopping after this step" in said
    assert "--resume goes on" in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "partly"], "--on"),
        (["train", "partly", "--on", "x.csv", "--anew"], "--anew"),
        (["train", "partly", "--anew", "--blocks", "4"], "--blocks is of --on"),
        (["train", "partly", "--on", "missing.csv"], "no key counts can be read"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence(words, told, capsys):
    assert main(words) == 2
    said = capsys.readouterr().err
    assert told in said
    assert len(said.splitlines()) == 1
