"""The measures of ``aiocuda bench``, and their peers.

Always true: each figure stands beside a floor of the same process and run, measured in turn with it.
"""
