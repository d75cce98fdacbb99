"""Merchant-side payments for Django: see README.md and docs/."""

__version__ = "0.1.0"
