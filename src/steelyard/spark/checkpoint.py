"""What the checkpoints of all engines have: whose they are, and names for what a batch writes."""

from __future__ import annotations

import json
import uuid
from typing import Any

from pyspark.sql import SparkSession

from steelyard.core import OptionError
from steelyard.spark.files import Folder


class CheckpointFolder:
    """The folder `steelyard` under a query's checkpoint.

    Parameters
    ----------
    spark, path
        A session, and the checkpoint's location.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.path = path
        self.root = Folder(spark, f"{path.rstrip('/')}/steelyard")
        self.commits = Folder(spark, self.root.child("commits"))

    def same_program(self, signature: dict[str, Any]) -> None:
        """Write the program's signature at the first start; later, refuse another."""
        text = json.dumps(signature, indent=1)
        if not self.root.exists("program.json"):
            self.root.make()
            self.root.write_once("program.json", text)
            return
        before = json.loads(self.root.read("program.json"))
        now = json.loads(text)
        for part, old in before.items():
            if now.get(part) != old:
                raise OptionError(
                    f"the checkpoint {self.path} belongs to another query: its {part}: {old}; now: "
                    f"{now.get(part)}. Use a new checkpoint location, or the old {part}"
                )

    def identity(self) -> str:
        """What tells this checkpoint from any other; made at the first start."""
        return self.first("identity", uuid.uuid4().hex)

    def first(self, name: str, text: str) -> str:
        """What the first start wrote into the file `name`: `text`, if this is the first."""
        if not self.root.exists(name):
            self.root.make()
            self.root.write_once(name, text)
        return self.root.read(name)

    def new_folder(self, batch: int) -> str:
        """A folder name that no other try of this batch has."""
        return f"{batch}-{uuid.uuid4().hex[:12]}"

    def commit_names(self) -> list[str]:
        """Files of commits, oldest first."""
        return [name for name in self.commits.names() if name.endswith(".json") and not name.startswith(".")]

    def write_commit(self, batch: int, text: str, keep: int) -> list[str]:
        """Write a commit in one step and remove old ones; gives the texts of the `keep` newest."""
        self.commits.make()
        self.commits.write_once(f"{batch:012d}.json", text)
        names = self.commit_names()
        for old in names[:-keep]:
            self.commits.delete(old)
        return [self.commits.read(name) for name in names[-keep:]]
