"""Collectives of several devices and processes, as operations: NCCL."""

from aiocuda._collective.group import Group as Group
from aiocuda._collective.group import unique_id as unique_id
from aiocuda._naming import name_publicly as _name_publicly

__all__ = ["Group", "unique_id"]

_name_publicly(__name__, globals(), __all__)
