"""Give a finance and support team the pages that they need every day beyond Django's admin: the back office.

Add ``payments_integration.contrib.finance`` and ``payments_integration.contrib.backoffice`` to INSTALLED_APPS, after
``payments_integration``. The back office registers its own pages in place of the core's.
"""
