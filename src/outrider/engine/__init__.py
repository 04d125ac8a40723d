"""Requests in, answers out: rounds of speculative decoding and everything around them."""
