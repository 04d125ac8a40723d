// Plain beside speculative: first the one, then the other, then both again from the recorded times.
import { Run, stream } from "./api.js";
import { reportError, request, settings } from "./settings.js";
import { Stats } from "./stats.js";
import { TokenView } from "./tokens.js";
import { composer, get, make, oncePerFrame, say, seconds } from "./ui.js";

let runs = []; // of the last race: plain, speculative
let frame = 0; // of a replay: the next one asked for

class Lane {
  constructor(element, name) {
    this.name = name;
    this.element = element;
    this.clock = make("span", { className: "clock" });
    this.text = make("div");
    this.stats = make("div", { className: "stats" });
    element.append(this.clock, this.text, this.stats);
    this.reset(new Run());
  }

  reset(run) {
    this.view = new TokenView(`${this.name} answer`);
    this.text.replaceChildren(this.view.element);
    this.figures = new Stats(this.stats, run);
    this.clock.textContent = "–";
  }

  async run(body, options) {
    const run = new Run();
    this.reset(run);
    this.element.classList.add("running");
    const ticking = setInterval(() => (this.clock.textContent = seconds(performance.now() - run.startedAt)), 50);
    try {
      await stream(run, body, { ...options, onTokens: oncePerFrame(() => this.draw(run)) });
    } finally {
      clearInterval(ticking);
      this.element.classList.remove("running");
      this.draw(run);
      this.clock.textContent = run.tokens.length ? seconds(run.lastAt) : "–";
    }
    return run;
  }

  draw(run) {
    this.view.draw(run.tokens);
    this.figures.show();
  }

  // Shows a recorded run as it stood at a time; says whether there is more to come.
  replay(run, at) {
    let end = this.view.drawn;
    while (run.tokens[end]?.at <= at) end += 1;
    this.view.draw(run.tokens, end);
    this.clock.textContent = seconds(Math.min(at, run.lastAt));
    return end < run.tokens.length;
  }
}

export function startRace() {
  const lanes = [new Lane(get("lane-plain"), "Plain"), new Lane(get("lane-speculative"), "Speculative")];
  composer(get("race-form"), async (text, signal) => {
    cancelAnimationFrame(frame);
    get("race-error").hidden = get("verdict").hidden = true;
    for (const lane of lanes) lane.reset(new Run());
    say("The race is on: plain first, then speculative.");
    try {
      await race(lanes, await request([{ role: "user", content: text }]), { key: settings.key, signal });
    } catch (error) {
      reportError("race-error", error);
    }
  });
  get("replay").addEventListener("click", () => replay(lanes));
}

async function race(lanes, body, options) {
  const plain = { ...body, logprobs: false, speculation: { enabled: false } };
  const speculative = { ...plain, speculation: { ...body.speculation, enabled: true } };
  await stream(new Run(), { ...plain, max_tokens: 1 }, { ...options, onTokens() {} }); // the warm-up
  runs = [];
  for (const [lane, asked] of [
    [lanes[0], plain],
    [lanes[1], speculative],
  ]) {
    if (!options.signal.aborted) runs.push(await lane.run(asked, options));
  }
  if (options.signal.aborted) return;
  const words = verdict(speculative, ...runs);
  get("verdict").querySelector("p").textContent = words;
  get("verdict").hidden = false;
  say(words);
}

function verdict(body, plain, speculative) {
  if (!plain.tokens.length || !speculative.tokens.length) return "There is nothing to compare: an answer is empty.";
  const { active, reason } = speculative.speculation ?? {};
  if (active === false) return `Nothing was raced, for speculation was off: ${reason}`;
  const time = ({ lastAt, tokens }) =>
    `${seconds(lastAt)} for ${tokens.length === 1 ? "1 token" : `${tokens.length} tokens`}`;
  const times = `${time(plain)} plain, ${time(speculative)} speculative.`;
  return `${pace(plain, speculative)}: ${times} ${comparison(body, plain, speculative)}`;
}

function pace(plain, speculative) {
  const ratio = plain.lastAt / plain.tokens.length / (speculative.lastAt / speculative.tokens.length);
  const each = plain.tokens.length === speculative.tokens.length ? "" : ", token for token";
  if (ratio > 1.02) return `Speculative was ${ratio.toFixed(2)} times as fast${each}`;
  if (ratio < 0.98) return `Speculative was slower, ${ratio.toFixed(2)} times as fast${each}`;
  return `Both were equally fast${each}`;
}

function comparison({ temperature, seed, speculation }, plain, speculative) {
  const ids = speculative.tokens.map((token) => token.id);
  const place = plain.tokens.findIndex((token, at) => token.id !== ids[at]);
  if (place < 0 && ids.length === plain.tokens.length) return "The answers are identical, token for token.";
  if (temperature !== 0) {
    if (seed === undefined)
      return "The answers differ, as two samples of one law do. With a seed, or at temperature 0, they are the same.";
    if (["token", "block"].includes(speculation.rule))
      return `The answers differ, for rule “${speculation.rule}” keeps the law, not the words.`;
  }
  return `The answers differ, from token ${(place < 0 ? plain.tokens.length : place) + 1} on. They should not: please report it.`;
}

function replay(lanes) {
  cancelAnimationFrame(frame);
  lanes.forEach((lane, place) => {
    lane.reset(runs[place]);
    lane.figures.show();
  });
  const startedAt = performance.now();
  const step = () => {
    const at = performance.now() - startedAt;
    const more = lanes.map((lane, place) => lane.replay(runs[place], at));
    if (more.some(Boolean)) frame = requestAnimationFrame(step);
  };
  step();
}
