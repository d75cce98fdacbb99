"""A merchant's own app, with one handler whose work is one UPDATE."""
