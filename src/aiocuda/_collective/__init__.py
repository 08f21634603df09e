"""Collectives of several devices and processes as operations."""
