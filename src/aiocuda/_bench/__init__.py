"""What ``aiocuda bench`` measures, and what it compares with.

Always true: each figure stands beside a floor of the same process and run, measured in turn with it.
"""
