"""Arrays on devices and in page-locked memory, their partitions, and those of other processes."""
