"""Show the overview of an account and the pages to which it leads: the search and the to-do list."""
