"""Kernels for a GPU in Triton, which comes with torch's builds for CUDA: products, rotation and attention of few
rows, and random words.

A pass of few rows takes the time in which its weights are read, and every further kernel adds some microseconds. So
what surrounds a product is done inside it. Import these modules only where `availability` finds no reason against it.
"""
