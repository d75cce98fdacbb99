"""The views, by the kind of object."""
