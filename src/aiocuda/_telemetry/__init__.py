"""What OpenTelemetry is told: counts as metrics, awaits and their operations as spans."""
