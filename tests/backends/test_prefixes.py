"""Caches that are kept for texts that begin alike."""

from outrider.backends.base import Rows
from outrider.backends.prefixes import PrefixCache, as_ids
from outrider.backends.toy import HashLM, ToyBackend


def test_they_are_bounded_and_the_oldest_goes_first():
    backend = ToyBackend(HashLM(9, seed=1))
    prefixes = PrefixCache(backend, 10)
    for first in range(4):
        cache_id = backend.open_sequence()
        texts = [first] * 4
        backend.forward([Rows(cache_id, texts, num_logits=0)])
        prefixes.add(cache_id, texts)
        backend.close_sequence(cache_id)
    assert prefixes.num_tokens == 8
    assert prefixes.longest(as_ids([0, 0])) is None
    assert prefixes.longest(as_ids([2, 2, 1]))[1] == 2
    assert len(backend._caches) == 2
    prefixes.clear()
    assert not backend._caches
