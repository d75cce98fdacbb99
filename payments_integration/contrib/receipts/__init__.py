"""Give payers receipts: a page that prints on one sheet, and mails.

Add ``"payments_integration.contrib.receipts"`` to INSTALLED_APPS, run ``migrate`` and include its ``urls``.
"""
