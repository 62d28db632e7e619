"""Jars by their coordinates, from a Maven repository that the tests make: no network is needed."""

from __future__ import annotations

import hashlib
import zipfile

import pytest

from steelyard.core.errors import OptionError
from steelyard.spark import kafka
from steelyard.spark.kafka import ArtifactError, kafka_jars, kafka_packages, resolve


class Repository:
    """A Maven repository in a directory."""

    def __init__(self, root):
        self.root = root

    def publish(self, artifact, version, needs=()):
        directory = self.root / "org" / "example" / artifact / version
        directory.mkdir(parents=True)
        with zipfile.ZipFile(directory / f"{artifact}-{version}.jar", "w") as jar:
            jar.writestr("name.txt", f"{artifact} {version}")
        dependencies = "".join(
            f"<dependency><groupId>org.example</groupId><artifactId>{name}</artifactId>"
            f"<version>{wanted}</version></dependency>"
            for name, wanted in needs
        )
        (directory / f"{artifact}-{version}.pom").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>"
            f"<artifactId>{artifact}</artifactId><version>{version}</version>"
            f"<dependencies>{dependencies}</dependencies></project>"
        )
        for file in list(directory.iterdir()):
            digest = hashlib.sha1(file.read_bytes()).hexdigest()
            file.with_name(f"{file.name}.sha1").write_text(digest)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "repository"
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", root.as_uri())
    # An installed Maven would look elsewhere.
    monkeypatch.setattr(kafka.shutil, "which", lambda name: None if name == "mvn" else name)
    return Repository(root)


def names(jars):
    return [jar.name for jar in jars]


def test_a_jar_comes_with_all_that_it_needs(repository):
    repository.publish("lever", "1.0")
    repository.publish("balance", "2.0", needs=[("lever", "1.0")])

    assert names(resolve(["org.example:balance:2.0"])) == [
        "org.example_balance-2.0.jar",
        "org.example_lever-1.0.jar",
    ]


def test_a_version_that_is_named_wins_over_one_that_a_dependency_asks_for(repository):
    repository.publish("lever", "1.0")
    repository.publish("balance", "2.0", needs=[("lever", "3.0")])

    jars = resolve(["org.example:balance:2.0", "org.example:lever:1.0"])

    assert names(jars) == ["org.example_balance-2.0.jar", "org.example_lever-1.0.jar"]


def test_an_excluded_artifact_is_not_looked_for(repository):
    repository.publish("balance", "2.0", needs=[("lever", "1.0")])

    assert names(resolve(["org.example:balance:2.0"], exclude=["lever"])) == ["org.example_balance-2.0.jar"]


def test_jars_are_downloaded_once(repository):
    repository.publish("balance", "2.0")
    first = resolve(["org.example:balance:2.0"])
    (repository.root / "org").rename(repository.root / "gone")

    assert resolve(["org.example:balance:2.0"]) == first
    assert all(jar.is_file() for jar in first)


def test_what_the_repository_lacks_is_named_and_leaves_nothing_behind(repository, tmp_path):
    repository.publish("balance", "2.0", needs=[("lever", "1.0")])

    with pytest.raises(ArtifactError, match=r"org\.example:lever:1\.0"):
        resolve(["org.example:balance:2.0"])
    assert list((tmp_path / "cache" / "steelyard" / "jars").iterdir()) == []


def test_a_repository_out_of_reach_is_told_from_a_missing_artifact(repository, monkeypatch):
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "http://127.0.0.1:9/")

    with pytest.raises(ArtifactError, match="no Maven repository was reached"):
        resolve(["org.example:balance:2.0"])


def test_a_connector_that_the_repository_lacks_is_never_replaced_unasked(repository):
    with pytest.raises(ArtifactError, match="STAND_IN_PACKAGES"):
        kafka_jars()


def test_the_connector_is_that_of_the_installed_spark_and_scala():
    pyspark = pytest.importorskip("pyspark")

    assert kafka_packages() == [f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"]


@pytest.mark.parametrize("text", ["", "org.example:balance", "a:b:c:d", 'a:b:1"/><x y="', "a::1"])
def test_a_package_that_cannot_be_read_is_named(text):
    with pytest.raises(OptionError, match="group:artifact:version"):
        resolve([text])


def test_no_package_is_an_error():
    with pytest.raises(OptionError, match="at least one"):
        resolve([])
