"""The REST API: a door for the merchant's own front ends and back offices, under the names of the provider.

Nothing of it is imported before the URLconf is. Views hold no rules: they say who may call (``permissions``), which
rows there are (``querysets``), call a service, and show the row that comes of it (``representations``).
"""
