"""`python -m bench.apart`: working ahead, measured on imitated devices."""
