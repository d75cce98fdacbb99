"""A payer's personal data: found, erased everywhere, and kept out (docs/8-operate.md, "Erasing a payer").

``select`` says which objects hold it, ``erase`` removes it and remembers the wish, ``finish`` brings to an end what
something open kept back.
"""

from payments_integration.erasure.erasing import Erased, erase, finish
from payments_integration.erasure.matching import Selection
from payments_integration.erasure.selecting import Found, UnknownObject, select

__all__ = ["Erased", "Found", "Selection", "UnknownObject", "erase", "finish", "select"]
