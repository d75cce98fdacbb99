"""Optional parts that only some projects need. Each has its own extra. The rest of the app imports none of them."""
