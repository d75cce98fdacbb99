"""Build the sections of the page of a payment, payout, refund or deposit reference."""
