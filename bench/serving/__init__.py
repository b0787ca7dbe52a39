"""The parts of `bench/serve.py`: a load generator, servers, requests and the soak."""
