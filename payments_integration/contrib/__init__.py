"""What only some projects need. Each module has its own extra, and the rest of the app imports none of them."""
