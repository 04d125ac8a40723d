// The conversation.
import { Run, stream } from "./api.js";
import { reportError, request, settings } from "./settings.js";
import { Stats } from "./stats.js";
import { TokenView } from "./tokens.js";
import { composer, follow, get, make, oncePerFrame, say, seconds } from "./ui.js";

const EXAMPLES = [
  "Write a Python function that merges two sorted lists, with a docstring.",
  "Explain to a child of ten why the sky is blue.",
  "List the planets with one fact about each.",
];

const conversation = []; // {role, content}: what the next request says has been said

export function startChat() {
  const start = composer(get("chat-form"), ask);
  for (const text of EXAMPLES) {
    get("examples").append(
      make("li", {}, make("button", { type: "button", textContent: text, onclick: () => start(text) })),
    );
  }
  get("clear").addEventListener("click", clear);
  get("copy").addEventListener("click", copy);
}

async function ask(text, signal) {
  const view = new TokenView(`Answer ${(conversation.length >> 1) + 1}`);
  const note = make("p", { className: "note" });
  const answer = make(
    "article",
    { className: "answer", ariaBusy: "true" },
    make("h3", { className: "unseen", textContent: "Answer" }),
    view.element,
    note,
  );
  const question = make(
    "article",
    { className: "question" },
    make("h3", { className: "unseen", textContent: "You" }),
    make("p", { textContent: text }),
  );
  get("messages").append(question, answer);
  get("chat-prompt").value = get("chat-prompt").style.height = "";
  get("chat-error").hidden = get("welcome").hidden = get("clear").disabled = true;
  get("chat-stats").hidden = false;
  document.scrollingElement.scrollTop = document.scrollingElement.scrollHeight;
  say("Answering.");

  const run = new Run();
  const stats = new Stats(get("chat-stats"), run);
  conversation.push({ role: "user", content: text });
  const draw = () => follow(() => (view.draw(run.tokens), stats.show()));
  try {
    const body = { ...(await request(conversation)), logprobs: settings.alternatives ? undefined : false };
    await stream(run, body, { key: settings.key, signal, onTokens: oncePerFrame(draw) });
  } catch (error) {
    reportError("chat-error", error);
  }
  answer.ariaBusy = "false";
  draw();
  if (run.tokens.length) {
    conversation.push({ role: "assistant", content: run.text });
    follow(() => (note.textContent = ending(run)));
    say(`${run.text}\n${note.textContent}`);
  } else {
    // Nothing was said: the question goes back to where it can be asked again.
    conversation.pop();
    question.remove();
    answer.remove();
    get("chat-prompt").value ||= text;
    get("chat-stats").hidden = true;
  }
  showWhatIsThere();
}

function ending(run) {
  const number = run.tokens.length === 1 ? "1 token" : `${run.tokens.length} tokens`;
  const account = `${number} in ${seconds(run.lastAt)}, ${run.counts.accepted} of them drafted`;
  if (run.isStopped) return `Stopped after ${account}.`;
  if (run.finishReason === null) return `Broken off after ${account}.`;
  if (run.finishReason === "length") return `${account}. Cut off where the limit on tokens or the context ends.`;
  return `${account}.`;
}

function showWhatIsThere() {
  const isEmpty = conversation.length === 0;
  get("welcome").hidden = !isEmpty;
  get("copy").disabled = get("clear").disabled = isEmpty;
}

function clear() {
  conversation.length = 0;
  get("messages").replaceChildren();
  get("chat-stats").hidden = get("chat-error").hidden = true;
  showWhatIsThere();
  get("chat-prompt").focus();
  say("Conversation cleared.");
}

async function copy() {
  const text = conversation.map(({ role, content }) => `${role === "user" ? "You" : "Model"}: ${content}`).join("\n\n");
  let words = "Copied";
  try {
    await navigator.clipboard.writeText(text); // browsers have it only by HTTPS and on the machine itself
  } catch {
    words = "The browser does not allow copying here";
  }
  get("copy").textContent = words;
  say(words);
  setTimeout(() => (get("copy").textContent = "Copy conversation"), 2000);
}
