"""Batches of a tenth of a second, scheduled in groups ahead of time on two workers inside one Spark job."""

import steelyard as sy
from steelyard.resident import Generated, count, sum
from steelyard.resident.groups import BatchProgram, Scheduling
from steelyard.spark.groups import run_batches
from steelyard.workloads import Zipf
from steelyard.workloads.rates import Constant


def main() -> None:
    """Count and sum by key, two seconds long."""
    program = BatchProgram(
        Generated(Zipf(1.2, 10_000), rows=200_000),
        ("key",),
        {"n": count(), "total": sum("value")},
        rate=Constant(100_000),  # rows per second, as they come
        partitioner="prompt",
    )
    spark = sy.session("groups", master="local[2]")
    scheduling = Scheduling(interval=0.1, blocks=2, buckets=2, slots=1)
    found = run_batches(spark, program, scheduling, workers=2, elastic="zones?most_blocks=4")
    for batch, run in found.batches.items():
        tasks = f"{run.plan.blocks} map and {run.plan.buckets} reduce tasks"
        print(f"batch {batch}: {run.rows:,} rows of {run.keys:,} keys in {tasks}, W = {run.load:.2f}")
    for change in found.changes:
        print(f"from batch {change.first}: {change.reason}")
    total = 0
    for table in found.results.values():
        total += table["n"].to_numpy().sum()
    print(f"{total:,} rows in {len(found.results)} batches, {found.groups} groups, {found.messages} messages")
    spark.stop()


if __name__ == "__main__":
    main()
