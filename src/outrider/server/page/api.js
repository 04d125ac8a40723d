// The server, as the page sees it: what is loaded, and one answer as it comes.
// Addresses are relative, so that the page works behind a proxy under any path.

const BROKEN_OFF = "The connection broke off. What had come until then stands.";

export class ServerError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

export async function loaded(key) {
  return (await send("outrider/info", { headers: headers(key) })).json();
}

// One answer: its tokens with the times they came at, in milliseconds from the request.
export class Run {
  tokens = []; // as the server gives them, and `at`
  counts = { accepted: 0, recovered: 0, bonus: 0, plain: 0 };
  speculation = null; // the server's account, when the answer has ended
  numDraftTokens = 0;
  finishReason = null;
  isStopped = false;
  inFirstChunk = 0;
  startedAt = performance.now();

  get text() {
    return this.tokens.map((token) => token.text).join("");
  }

  get firstAt() {
    return this.tokens[0]?.at;
  }

  get lastAt() {
    return this.tokens.at(-1)?.at;
  }

  // Accepted by drafted tokens; null before there are any.
  get acceptanceRate() {
    return this.numDraftTokens ? this.counts.accepted / this.numDraftTokens : null;
  }

  // Tokens a second, those of the first chunk and their time left out; null while the time is too short to tell.
  get speed() {
    const time = this.lastAt - this.firstAt;
    return time > 20 ? (1000 * (this.tokens.length - this.inFirstChunk)) / time : null;
  }
}

// Asks for an answer and calls `onTokens()` after each chunk with tokens. What came before an error stays in `run`.
export async function stream(run, body, { key, signal, onTokens }) {
  run.startedAt = performance.now();
  try {
    const response = await send("v1/chat/completions", {
      method: "POST",
      headers: { ...headers(key), "Content-Type": "application/json" },
      body: JSON.stringify({
        ...body,
        stream: true,
        stream_options: { include_usage: true },
        return_token_details: true,
      }),
      signal,
    });
    for await (const chunk of events(response.body)) take(run, chunk, onTokens);
  } catch (error) {
    if (error.name !== "AbortError") throw error;
    run.isStopped = true;
  }
  if (!run.finishReason && !run.isStopped) throw new ServerError(BROKEN_OFF);
}

function take(run, chunk, onTokens) {
  if (chunk.error) throw new ServerError(chunk.error.message ?? "The server reports an error without a message.");
  if (chunk.speculation) run.speculation = chunk.speculation;
  const choice = chunk.choices?.[0];
  if (!choice) return;
  if (choice.error) throw new ServerError(choice.error);
  run.numDraftTokens = choice.num_draft_tokens ?? run.numDraftTokens;
  if (choice.finish_reason) run.finishReason = choice.finish_reason;
  const at = performance.now() - run.startedAt;
  const tokens = (choice.token_details ?? []).map((token) => ({ ...token, at }));
  for (const token of tokens) run.counts[token.origin] += 1;
  run.inFirstChunk ||= tokens.length;
  run.tokens.push(...tokens);
  if (tokens.length) onTokens();
}

// Server-sent events: blocks of lines between empty lines. This API puts a document or [DONE] into each.
async function* events(body) {
  let rest = "";
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop();
      for (const block of blocks) {
        const data = block
          .split(/\r?\n/)
          .filter((line) => line.startsWith("data:"))
          .map((line) => line.slice(5))
          .join("\n");
        if (data.trim() === "[DONE]") return;
        if (data) yield JSON.parse(data);
      }
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(BROKEN_OFF);
  } finally {
    reader.cancel().catch(() => {}); // whoever reads no further is gone: the server may stop
  }
}

async function send(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server cannot be reached. Is it still running?");
  }
  if (!response.ok) throw new ServerError(await inWords(response, "Authorization" in options.headers), response.status);
  return response;
}

async function inWords(response, hasKey) {
  const document = await response.json().catch(() => null); // a proxy's error page is not JSON
  const said = document?.error?.message ?? `The server answered with status ${response.status}.`;
  if (response.status === 401)
    return hasKey ? "The server does not know this API key." : "The server wants an API key.";
  const wait = response.headers.get("Retry-After");
  if (response.status === 429) return `The server is busy${wait ? `; try again in ${wait} s` : ""}: ${said}`;
  return said;
}

function headers(key) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}
