"""The pages of the back office, in the place of the core's.

A project that adds to them does the same: a subclass in its own ``admin.py``, registered after ``unregister``.
"""

from payments_integration.contrib.backoffice.admin import menu, pages

__all__ = ["menu", "pages"]
