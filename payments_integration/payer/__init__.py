"""Show a payer their payment, in the checkout pages and the API: its status in plain words, the signed addresses of
its pages, and reads from the provider while the payer waits.
"""
