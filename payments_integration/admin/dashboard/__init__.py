"""The index page of the app with the money and what needs a person, and the page of the technical state."""
