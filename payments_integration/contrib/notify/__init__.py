"""An optional app that sends ``attention`` to people, by mail and to a chat."""
