"""Keep books: store a row for each movement of money, and write the journal that an accounting program reads.

Add ``"payments_integration.contrib.finance"`` to INSTALLED_APPS, run ``migrate`` and then ``payments_journal
--backfill`` once. The rest of the app works without it.
"""
