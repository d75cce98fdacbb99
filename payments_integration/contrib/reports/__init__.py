"""Offer SQL views with stable names for reports, without personal data and free text.

Add ``"payments_integration.contrib.reports"`` to INSTALLED_APPS and run ``migrate``.
"""
