"""Provide what every list has: search, filters, pages of constant cost and an export."""
