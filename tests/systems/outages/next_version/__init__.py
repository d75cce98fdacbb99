"""A next minor version of the app: one column and one index more, which its code writes and reads."""
