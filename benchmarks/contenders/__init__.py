"""Small Django projects that are measured side by side."""
