"""The unmodified OpenAI client on `outrider serve`: an answer as it streams, or an edit of a file.

    pip install openai
    outrider serve --target qwen2.5-coder-1.5b --draft ngram
    python examples/openai_client.py "Write a haiku about rivers."
    python examples/openai_client.py "Rename the function to merge_sorted." --file merge.py

An edit repeats most of a file. Sent as the `prediction`, the file is what the server drafts from.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from openai import OpenAI, OpenAIError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("prompt")
    parser.add_argument("--file", type=Path, help="what to edit")
    parser.add_argument("--base-url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--api-key", default="none")
    parser.add_argument("--max-tokens", type=int, default=512)
    args = parser.parse_args()

    client = OpenAI(base_url=args.base_url, api_key=args.api_key)
    prompt = args.prompt
    prediction: dict[str, Any] = {}
    if args.file:
        text = args.file.read_text()
        prompt = f"{prompt} Reply with the whole new file and nothing else.\n\n{text}"
        prediction = {"prediction": {"type": "content", "content": text}}
    chunks = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=[{"role": "user", "content": prompt}],
        max_tokens=args.max_tokens,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        **prediction,
    )
    usage, speculation = None, {}
    for chunk in chunks:
        for choice in chunk.choices:
            sys.stdout.write(choice.delta.content or "")
            sys.stdout.flush()
        usage = chunk.usage or usage
        speculation = (chunk.model_extra or {}).get("speculation") or speculation
    print()
    print(f"{usage.completion_tokens} tokens; {speculation['reason']}", file=sys.stderr)
    if args.file:
        details = usage.completion_tokens_details
        print(
            f"of the file, {details.accepted_prediction_tokens} tokens were drafted and accepted, "
            f"{details.rejected_prediction_tokens} were not",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OpenAIError, OSError) as error:
        sys.stderr.write(f"openai_client: {error}\n")
        sys.exit(2)
