"""Prompts for an audit that is given none: name and text, of several kinds, short."""

PROMPTS = (
    ("letter", "Write a short letter to a neighbour who has lent you a ladder."),
    ("code", "Write a Python function that returns the n-th Fibonacci number, with a docstring."),
    ("story", "Begin a story about a lighthouse keeper who finds a message in a bottle."),
    ("explain", "Explain to a child why the sky is blue."),
    ("list", "Name five things that a traveller to a cold country should pack, and say why."),
    ("translate", "Translate into French: The train leaves at seven, so please do not be late."),
    ("sums", "A baker sells 12 rolls at 40 cents each and 5 loaves at 3 euros each. How much is that? Show your work."),
    ("opinion", "Is it better to read a book or to watch the film made of it? Give two reasons."),
)
