"""Register the pages of the back office in place of the core's.

To add to them, a project does the same: it registers a subclass in its own ``admin.py`` after ``unregister``.
"""

from payments_integration.contrib.backoffice.admin import model_admins

__all__ = ["model_admins"]
