"""Provide the page of each model, or of a group of related models. Importing a module registers its pages."""
