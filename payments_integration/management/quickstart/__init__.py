"""What ``payments_quickstart`` finds missing in a project, and how it writes it."""
