"""Which CUDA driver this process runs on, and the only importers of ``cuda.*``.

`aiocuda.select_driver` must have returned before anything of ``cuda.*`` is imported.
"""
