"""Functions of other frameworks as operations. `operation` is what they share; each framework has a file of its own."""
