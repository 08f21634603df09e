"""Functions that make operations: of new arrays, copies, fills, random numbers, products; and that wait for several."""
