"""The overview of an account, and the pages that it leads to: the search, and orders that do not match."""
