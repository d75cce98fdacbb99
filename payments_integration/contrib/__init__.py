"""Optional parts that only some projects need. Each has its own extra, and the rest of the app imports none of them."""
