"""The app's migrations as a later version may have them: one more, which changes the types of columns."""
