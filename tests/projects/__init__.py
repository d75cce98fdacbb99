"""As other projects use it: the docs word for word, foreign sites, types, other languages, releases."""
