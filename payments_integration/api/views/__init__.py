"""Serve the API. Each module has the views of one kind of object."""
