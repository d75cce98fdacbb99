"""A complete fake of the payment provider, for tests and for development.

It shares no code with the rest of the app, so that one mistake cannot be on both sides. See ``docs/sandbox.md``.
"""

from __future__ import annotations

from .clock import Clock
from .common_rules import RateLimits
from .controls import Project
from .engine import Engine
from .faults import Fault
from .protocol import ApiError
from .resources import SandboxError, UnknownObjectError
from .server import SandboxServer

__all__ = [
    "ApiError", "Clock", "Engine", "Fault", "Project", "RateLimits", "SandboxError", "SandboxServer",
    "UnknownObjectError",
]  # fmt: skip
