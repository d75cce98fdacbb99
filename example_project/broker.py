"""Kombu's filesystem transport, with messages that appear whole.

Kombu creates a message's file under its final name and then fills it; a worker that looks in between takes an empty
message and stops. Here a message is written under a name that no worker looks for, then renamed.
"""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import Any

from kombu.transport import filesystem
from kombu.utils.json import dumps


class Channel(filesystem.Channel):  # type: ignore[misc]  # kombu is not typed
    """Writes atomically, and makes its folders when they are not there."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for folder in (self.data_folder_in, self.data_folder_out, self.control_folder, self.processed_folder):
            Path(folder).mkdir(parents=True, exist_ok=True)

    def _put(self, queue: str, payload: Any, **kwargs: Any) -> None:
        name = f"{time.monotonic_ns():020d}_{uuid.uuid4()}.{queue}.msg"
        unfinished = Path(self.data_folder_out) / f"{name}.part"
        unfinished.write_bytes(dumps(payload).encode())
        os.replace(unfinished, Path(self.data_folder_out) / name)


class Transport(filesystem.Transport):  # type: ignore[misc]  # kombu is not typed
    Channel = Channel
