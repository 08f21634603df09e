"""Devices, their streams, events and memory, and where work goes that says nothing of it."""
