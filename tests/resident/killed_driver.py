"""A driver to kill: python -m tests.resident.killed_driver FOLDER PROTOCOL ROWS. Its workers are processes."""

from __future__ import annotations

import sys
from pathlib import Path

from steelyard.resident import Settings, run
from tests.cluster.killed_flow import WORKERS, dataflow


def main() -> None:
    folder, protocol, rows = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    settings = Settings(store=str(folder / "store"), interval=0.1, heartbeat=0.1, restarts=0, protocol=protocol)
    run(dataflow(rows, folder), workers=WORKERS, processes=True, settings=settings)


if __name__ == "__main__":
    main()
