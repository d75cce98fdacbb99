"""The index page of the app: what needs attention, whether events arrive, and how much money moved."""
