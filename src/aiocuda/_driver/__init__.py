"""Which CUDA driver this process runs on, and the only importers of ``cuda.*``.

`aiocuda._driver.select.select` must have returned before anything of ``cuda.*`` is imported.
"""
