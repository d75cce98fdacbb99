"""What pages of every kind share: how values are shown, columns, buttons, sections and messages."""
