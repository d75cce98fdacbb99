"""The documentation site: built strictly, and read as a browser gets it."""
