"""What a payer may know of a payment, for the checkout pages and the API: its status in their words, the signed
addresses of its pages, and how it is read while they wait.
"""
