"""Instruments: statistics, reports for debugging, and advice on what to do instead."""
