"""One process's share of the schedules, on a database of its own; a line of JSON per batch.

Called by ``python -m tests.simulation``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import django
from django.db import connection

#: In memory where there is such a place.
_MEMORY = Path("/dev/shm")


def main(work: dict[str, int], seeds: list[int]) -> None:
    django.setup()
    # Not before: these modules need the models.
    running = import_module("tests.simulation.running")
    # A stop leaves no database behind. The schedule in hand would catch an exception.
    signal.signal(signal.SIGTERM, lambda *_: running.stop.set())
    with database(), running.scheduler():
        for seed in seeds:
            findings = running.run(seed, work["batch"], steps=work["steps"], shrink=work["shrink"])
            sys.stdout.write(json.dumps({**findings.summary(), "database": connection.vendor}) + "\n")
            sys.stdout.flush()


@contextmanager
def database() -> Iterator[None]:
    """A database with the app's tables, gone afterwards."""
    name = connection.settings_dict["NAME"]
    if connection.vendor == "sqlite":
        directory = _MEMORY if _MEMORY.is_dir() else Path(tempfile.gettempdir())
        test_name = str(directory / f"payments_integration_simulation_{os.getpid()}.sqlite3")
    else:
        test_name = f"simulation_{os.getpid()}"
    connection.settings_dict["TEST"]["NAME"] = test_name
    try:
        connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
        yield
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    try:
        main(options, options["seeds"])
    except KeyboardInterrupt:
        sys.exit(143)
