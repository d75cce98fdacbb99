"""Kombu's filesystem transport, with files that appear whole.

Kombu creates a file under its final name and then fills it; a worker that looks in between reads nothing and stops.
Here a message is written under a name that no worker looks for, then renamed; the list of queues is guarded by a lock.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kombu.transport import filesystem
from kombu.utils.json import dumps


class Channel(filesystem.Channel):
    """Writes atomically, and makes its folders when they are not there."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for folder in (self.data_folder_in, self.data_folder_out, self.control_folder, self.processed_folder):
            Path(folder).mkdir(parents=True, exist_ok=True)

    def _put(self, queue: str, payload: Any, **kwargs: Any) -> None:  # type: ignore[override]  # as kombu does
        name = f"{time.monotonic_ns():020d}_{uuid.uuid4()}.{queue}.msg"
        unfinished = Path(self.data_folder_out) / f"{name}.part"
        unfinished.write_bytes(dumps(payload).encode())
        os.replace(unfinished, Path(self.data_folder_out) / name)

    def _queue_bind(self, *args: Any, **kwargs: Any) -> None:
        with self._alone():
            super()._queue_bind(*args, **kwargs)

    def get_table(self, exchange: str) -> Any:
        with self._alone():
            return super().get_table(exchange)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with (Path(self.control_folder) / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class Transport(filesystem.Transport):
    Channel = Channel
