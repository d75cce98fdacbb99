"""The back office: what the day of a finance and support team needs beyond Django's admin.

Add ``payments_integration.contrib.finance`` and ``payments_integration.contrib.backoffice`` to INSTALLED_APPS, after
``payments_integration``. It registers its own pages in the place of the core's.
"""
