"""Functions of batches whose callers await one item each."""
