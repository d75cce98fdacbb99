"""Register the pages of the back office in place of the core's.

To add to them, a project does the same: it registers a subclass in its own ``admin.py`` after ``unregister``.
"""

from django.apps import apps

from payments_integration.contrib.backoffice.admin import model_admins

if apps.is_installed("payments_integration.contrib.receipts"):
    from payments_integration.contrib.backoffice.admin import receipts  # noqa: F401  (it registers a page)

__all__ = ["model_admins"]
