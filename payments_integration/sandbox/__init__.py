"""A complete fake of the payment provider, for tests and for development.

It shares no code with the rest of the app, so that one mistake cannot hide in both. See ``docs/sandbox.md``.
"""

from __future__ import annotations

from .clock import Clock
from .controls import ProjectControls
from .engine import Engine
from .errors import SandboxError, UnknownObjectError
from .faults import Fault
from .ratelimit import RateLimits
from .server import SandboxServer

Project = ProjectControls

__all__ = [
    "Clock",
    "Engine",
    "Fault",
    "Project",
    "RateLimits",
    "SandboxError",
    "SandboxServer",
    "UnknownObjectError",
]
