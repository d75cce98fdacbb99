"""Find a payer's personal data, erase it everywhere and keep it out (docs/8-operate.md, "Erasing a payer").

``select`` finds the objects that hold it. ``erase`` removes it and records the request. ``finish`` erases what open
operations and pending events kept from being erased. ``erase_archive`` does the same in the files of
``payments_archive``.
"""

from payments_integration.erasure.files import InArchive, erase_archive
from payments_integration.erasure.removal import Erased, erase, finish
from payments_integration.erasure.search import Found, UnknownObject, select
from payments_integration.erasure.selection import Selection

__all__ = [
    "Erased",
    "Found",
    "InArchive",
    "Selection",
    "UnknownObject",
    "erase",
    "erase_archive",
    "finish",
    "select",
]
