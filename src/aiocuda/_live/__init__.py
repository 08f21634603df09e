"""A running process in numbers, in this process and from another one: `monitor` and ``aiocuda top``."""
