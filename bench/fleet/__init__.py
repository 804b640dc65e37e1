"""`python -m bench.fleet`: many drafts and targets behind one coordinator, measured on imitated devices."""
