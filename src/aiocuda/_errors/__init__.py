"""The errors, by what they are about; `aiocuda.errors` has them all."""
