"""What ``make release-check`` built in ``dist/``. Needs a clone, because git knows which files belong to a release."""
