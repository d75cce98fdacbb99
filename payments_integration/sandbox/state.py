"""Keep the content of a sandbox in a file across restarts: see "Keep the state" in docs/sandbox.md."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .catalog import METHODS
from .engine import Engine
from .faults import Fault
from .project import ProjectRecord
from .records import dump, load

logger = logging.getLogger("payments_integration.sandbox")

FORMAT: Final = "payments-sandbox-state"
VERSION: Final = 2
DAMAGES: Final = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, AssertionError,
)  # fmt: skip
ADVICE: Final = "Name another file, or move this one away."
#: The fields that every object of a collection has, after id and object.
FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "payments": (
        "status", "amount", "amount_received", "fee", "net_amount", "currency", "country", "method_code",
        "method_family", "flow", "checkout_url", "refunded_amount", "next_action", "failure_reason", "metadata",
        "created_at", "expires_at", "succeeded_at",
    ),
    "payouts": (
        "status", "amount", "fee", "currency", "country", "method_code", "destination", "failure_reason", "refund_id",
        "metadata", "created_at", "succeeded_at",
    ),
    "refunds": ("status", "payment_id", "payout_id", "amount", "currency", "reason", "created_at"),
    "deposit_references": ("status", "country", "currency", "method_code", "details", "created_at"),
    "events": ("type", "created_at", "data"),
}  # fmt: skip


class StateError(Exception):
    """A file cannot be used as the state of a sandbox. The text names the file and says what to do."""


@dataclass(frozen=True)
class State:
    """The saved state of an engine."""

    faults: list[Fault]
    projects: list[ProjectRecord]


class StateFile:
    """Saves an engine's content to a file before each answer and delivery, so that nothing known outside is lost.

    Each save replaces the whole file. Only its owner can read it, because it contains secrets.
    """

    def __init__(self, path: Path, engine: Engine) -> None:
        self.path = path.expanduser().resolve()
        self._engine = engine
        self._lock = threading.Lock()
        self._marker: object = None
        self._digest = b""
        self._written: tuple[int, int, int] | None = None
        self._problem = ""

    def open(self) -> bool:
        """Restore a new engine if the file exists, and save at each of its checkpoints. Returns True if it existed.

        Writes nothing yet. Raises StateError if the file cannot be read, is damaged or is something else.
        """
        identity = self._identity()
        if identity is not None:
            try:
                content = self.path.read_bytes()
            except OSError as error:
                raise StateError(f"cannot read {self.path}: {error.strerror}") from error
            self._restore(content)
            self._written, self._digest = identity, hashlib.sha256(content).digest()
        self._engine.checkpoint = self.save
        return identity is not None

    def save(self, changed: bool) -> str:
        """Write the file if the content differs. Returns "" or why it cannot be written.

        ``changed=False`` does nothing unless an object has changed, a delivery was made or a fault applied.
        """
        with self._lock:
            with self._engine.lock:
                marker = _marker(self._engine)
                if not changed and marker == self._marker and not self._problem:
                    return ""
                content = dump({"format": FORMAT, "version": VERSION, **vars(_state(self._engine))})
            digest = hashlib.sha256(content).digest()
            problem = "" if digest == self._digest else self._write(content)
            if problem and problem != self._problem:
                logger.error("%s", problem)
            self._problem = problem
            if not problem:
                self._marker, self._digest = marker, digest
            return problem

    def _write(self, content: bytes) -> str:
        """Replace the file atomically. A reader finds the old or the new content, even after a crash."""
        if self._identity() not in (None, self._written):
            return (
                f"another program has changed {self.path}; the sandbox does not overwrite it. Restart one of the two"
            )
        temporary = self.path.with_name(f"{self.path.name}.tmp")
        try:
            with suppress(FileNotFoundError):
                temporary.unlink()
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except OSError as error:
            return f"cannot write {self.path}: {error.strerror}"
        self._written = self._identity()
        return ""

    def _identity(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _restore(self, content: bytes) -> None:
        try:
            data = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise StateError(f"{self.path} is damaged or no state of a sandbox: {error}. {ADVICE}") from error
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise StateError(f"{self.path} is not the state of a sandbox. {ADVICE}")
        if (version := data.pop("version", None)) != VERSION:
            raise StateError(
                f"{self.path} has version {version!r} of the format; this sandbox reads {VERSION}. {ADVICE}"
            )
        try:
            _apply(self._engine, load(State, data, "state"))
        except DAMAGES as error:
            text = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise StateError(f"{self.path} is damaged: {text}. {ADVICE}") from error


def _state(engine: Engine) -> State:
    return State(engine.faults.all(), [project.state.record() for project in engine.projects.values()])


def _marker(engine: Engine) -> object:
    """Return a value that differs after every change, except changes that only a request other than GET can make."""
    states = [project.state for project in engine.projects.values()]
    used = sum(fault.used for fault in engine.all_faults())
    return used, [(state.clock.record(), state.dispatcher.changes) for state in states]


def _apply(engine: Engine, state: State) -> None:
    """Fill a new engine, and test it. Raises one of DAMAGES if the state contradicts itself."""
    if not state.projects:
        raise ValueError("it has no project")
    for project in state.projects:
        _check_objects(project)
    engine.faults.restore(state.faults)
    engine.restore_projects(state.projects)
    if errors := [error for project in engine.projects.values() for error in project.audit()]:
        raise ValueError(f"its books do not add up: {errors[0]}")
    engine.tick()


def _check_objects(project: ProjectRecord) -> None:
    for collection, names in FIELDS.items():
        for item in getattr(project, collection):
            lacking = [name for name in ("id", "object", *names) if name not in item]
            if lacking:
                raise ValueError(f"one of its {collection} lacks {', '.join(lacking)}")
            if not isinstance(item["id"], str) or item["object"] != collection.removesuffix("s"):
                raise ValueError(f"one of its {collection} has a wrong id or object")
            if item.get("method_code") not in (None, *METHODS):
                raise ValueError(f"{item['id']} has an unknown method_code")
