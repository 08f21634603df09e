"""Pictures of work: DAGs as SVG. Knows no device, and nothing of operations."""
