"""Find a payer's personal data, erase it everywhere and keep it out (docs/operate.md, "Erasing a payer").

``select`` finds the objects that hold it. ``erase`` removes it and records the request. ``finish`` erases what open
operations and pending events kept from being erased.
"""

from payments_integration.erasure.erasers import Eraser as Eraser, erasers as erasers, register as register
from payments_integration.erasure.removal import Erased as Erased, erase as erase, finish as finish
from payments_integration.erasure.search import Found as Found, UnknownObject as UnknownObject, select as select
from payments_integration.erasure.selection import Selection as Selection
