"""Share code between all kinds of pages: values, columns, buttons, sections and messages."""
