"""Traces: what is recorded of a program, what it says, and the files that show it."""
