"""Executions, futures and waits, as Python sees them, and the errors that come of them."""
