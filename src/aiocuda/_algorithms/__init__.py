"""Algorithms on whole arrays: sorting, scans, reductions, selections, histograms, expressions, Fourier transforms."""
