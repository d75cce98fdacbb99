"""The addresses of the API, one module per kind of object."""
