"""The batch of `batch.py` on Flink: rows go to the block that Prompt gave them, and what was cut is merged by word.

Needs an environment of its own (`pip install apache-flink==2.3.0`) and the folder that `batch.py` wrote:

    python examples/engines/flink_words.py out/engines

The source stands for Flink's SourceReader, `partition_custom` for balanced buffers, and the row without a word for
the control event that ends a batch.
"""

import csv
import sys
from pathlib import Path

from pyflink.common import Types
from pyflink.datastream import FlatMapFunction, Partitioner, RuntimeExecutionMode, StreamExecutionEnvironment

BLOCKS = 4


class ByBlock(Partitioner):
    """A row goes to the task of its block."""

    def partition(self, key, num_partitions):
        return key % num_partitions


class Combine(FlatMapFunction):
    """Adds up a block, and gives a total for each word when the batch ends."""

    def open(self, runtime_context):
        self.totals = {}
        self.rows = 0
        self.task = runtime_context.get_index_of_this_subtask()

    def flat_map(self, row):
        word, value, block = row
        if word:
            self.rows += 1
            self.totals[word] = self.totals.get(word, 0) + value
            return
        print(f"block {block} in task {self.task}: {self.rows} rows, {len(self.totals)} words", file=sys.stderr)
        yield from self.totals.items()


def main(folder):
    with open(folder / "rows.csv", newline="") as file:
        rows = [(word, int(value), int(block)) for word, value, block in csv.reader(file)]
    environment = StreamExecutionEnvironment.get_execution_environment()
    environment.set_runtime_mode(RuntimeExecutionMode.STREAMING)  # a batch job would choose its number of tasks itself
    environment.set_python_executable(sys.executable)
    environment.set_parallelism(BLOCKS)
    # PyFlink 2.3: partition_custom finds the number of tasks only here
    environment.get_config().set_global_job_parameters({"NUM_PARTITIONS": str(BLOCKS)})
    source = environment.from_collection(rows, Types.TUPLE([Types.STRING(), Types.LONG(), Types.INT()]))
    totals = (
        source.partition_custom(ByBlock(), lambda row: row[2])
        .flat_map(Combine(), Types.TUPLE([Types.STRING(), Types.LONG()]))
        .key_by(lambda partial: partial[0])
        .reduce(lambda one, other: (one[0], one[1] + other[1]))
    )
    found = sorted(dict(totals.execute_and_collect()).items())  # a total grows with each block: the last one counts
    with open(folder / "expected.csv", newline="") as file:
        expected = [(word, int(total)) for word, total in csv.reader(file)]
    if found != expected:
        raise SystemExit(f"wrong: {len(found)} words instead of {len(expected)}, or other totals")
    print(f"Flink gave the {len(found)} totals that plain Python adds up.")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/engines"))
