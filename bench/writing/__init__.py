"""The parts of `bench/write.py`."""
