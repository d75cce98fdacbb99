"""Send ``attention`` to people, by mail and to a chat. This app is optional."""
