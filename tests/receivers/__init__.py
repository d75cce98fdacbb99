"""An app whose receivers note what they are told; its table shares their transaction."""
