"""Find a payer's personal data, erase it everywhere and keep it out (docs/operate.md, "Erasing a payer").

``select`` finds the objects that hold it. ``erase`` removes it and records the request. ``finish`` erases what open
operations and pending events kept from being erased.
"""

from payments_integration.erasure.erasers import Eraser, erasers, register
from payments_integration.erasure.removal import Erased, erase, finish
from payments_integration.erasure.search import Found, UnknownObject, select
from payments_integration.erasure.selection import Selection

__all__ = [
    "Erased",
    "Eraser",
    "Found",
    "Selection",
    "UnknownObject",
    "erase",
    "erasers",
    "finish",
    "register",
    "select",
]
