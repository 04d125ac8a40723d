"""An OpenAI-compatible HTTP API and a page, around one engine.

* ``bodies`` and ``schemas``: what a request may say. Unknown fields are errors that name the field.
* ``engine``: the one thread that owns the models, and how a request reaches it and its answer comes back.
* ``jobs``: from a request to what the engine is asked. ``replies`` and ``tools``: from tokens to what a client reads.
* ``app``: the routes. ``metrics``, ``logs``, ``openapi``, ``keys``: what operation takes. ``running``: a process.

Beyond OpenAI's fields:

* Every answer's account: ``choices[i].speculation`` and ``choices[i].timing`` (``queue_s, prefill_s, decode_s,
  tokens_per_s``), in a stream in the chunk with the choice's ``finish_reason``. Where one answer was asked for, both
  stand at the top level of the reply or chunk, too. ``speculation`` is the object of ``outrider generate --json``.
* ``return_token_details: true`` adds ``choices[i].token_details``, in a stream to every chunk: ``[{id, text, origin,
  source, logprob, top_logprobs: [{id, text, logprob}]}]``; ``text`` is what the token made certain of the text. Five
  alternatives unless ``top_logprobs`` says how many; ``logprobs: false`` spares the time that these and ``logprob``
  take. In a stream, ``num_draft_tokens`` beside them says how many were drafted so far.
* ``GET /outrider/info``: ``{target, drafts, memory_bytes, threads, speculation: {active, reason,
  num_speculative_tokens}, defaults, limits, has_tools, version}``.
* An error in the midst of a stream is an event ``{"error": {...}}``, and the stream ends without ``[DONE]``.
"""
