"""docs/runbook.md, followed on sites that are broken on purpose."""
