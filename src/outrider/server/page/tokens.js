// An answer as tokens: each is a span that shows how it came about, and tells more when pointed at or walked to.
// Whatever a model says enters the page as text, never as markup.

import { make } from "./ui.js";

const ORIGINS = {
  accepted: ["drafted", "The draft proposed it and the model accepted it."],
  recovered: ["recovered", "The draft proposed something else here. This is what the model says."],
  bonus: ["bonus", "The whole draft was accepted. The same pass gave this token as well."],
  plain: ["plain", "From a pass without a draft."],
};

// A key to the marks, with how many tokens bear each.
export function legend() {
  const counts = {};
  const list = make("ul", { className: "legend" });
  for (const [origin, [name, meaning]] of Object.entries(ORIGINS)) {
    counts[origin] = make("b", { textContent: "0" });
    list.append(
      make(
        "li",
        { title: meaning },
        make("span", { className: `t ${origin}`, textContent: name }),
        " ",
        counts[origin],
      ),
    );
  }
  return {
    list,
    show(tokens) {
      for (const origin of Object.keys(counts)) counts[origin].textContent = tokens[origin];
    },
  };
}

// Where an answer's tokens go. Only ever appended to, so that long answers stay fast.
export class TokenView {
  drawn = 0;
  #isCode = false;
  #tail = "";

  constructor(name) {
    this.element = make("div", { className: "tokens", tabIndex: 0 });
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", `${name}. Arrow keys walk through its tokens.`);
    this.element.tokens = new WeakMap();
  }

  // Draws those of the tokens, from the first to the one before `end`, that are not drawn yet.
  draw(tokens, end = tokens.length) {
    const missing = tokens.slice(this.drawn, end).filter((token) => token.text);
    this.element.append(...missing.map((token) => this.#span(token)));
    this.drawn = end;
  }

  #span(token) {
    const span = make("span", { className: `t ${token.origin}`, tabIndex: -1, textContent: token.text });
    if (this.#isCode) span.classList.add("code");
    // Between fences of three backticks, which tokens may cut, the text is code.
    const fences = (this.#tail + token.text).split("```");
    if (fences.length % 2 === 0) this.#isCode = !this.#isCode;
    this.#tail = fences.at(-1).slice(-2);
    this.element.tokens.set(span, token);
    return span;
  }
}

// One tip for all tokens: it follows the pointer or the focus, stays while pointed at, and Escape puts it away.
export function installTip(tip) {
  let hiding;
  let shown = null;
  const hide = () => {
    tip.hidden = true;
    shown?.removeAttribute("aria-describedby");
    shown = null;
  };
  const show = (span) => {
    clearTimeout(hiding);
    if (span === shown) return;
    hide();
    shown = span;
    tip.replaceChildren(...describe(span.parentElement.tokens.get(span)));
    tip.hidden = false;
    place(tip, span);
    span.setAttribute("aria-describedby", tip.id);
  };
  const soon = () => {
    clearTimeout(hiding);
    hiding = setTimeout(hide, 200);
  };
  const tokenOf = (target) => target.closest?.(".tokens > .t");

  document.addEventListener("pointerover", (event) => {
    if (tip.contains(event.target)) clearTimeout(hiding);
    else if (tokenOf(event.target)) show(tokenOf(event.target));
    else if (shown && shown !== document.activeElement) soon();
  });
  document.addEventListener("focusin", (event) => (tokenOf(event.target) ? show(tokenOf(event.target)) : hide()));
  document.addEventListener("focusout", soon);
  const keepUp = () => (shown?.getClientRects().length ? place(tip, shown) : hide());
  document.addEventListener("scroll", keepUp, { passive: true });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && shown) {
      hide();
      event.stopImmediatePropagation();
    } else if (event.target.closest?.(".tokens")) walk(event);
  });
}

function walk(event) {
  const view = event.target.closest(".tokens");
  const here = event.target === view ? null : event.target;
  const next = {
    ArrowRight: here ? here.nextElementSibling : view.firstElementChild,
    ArrowLeft: here?.previousElementSibling,
    Home: view.firstElementChild,
    End: view.lastElementChild,
  }[event.key];
  if (!next) return;
  event.preventDefault();
  next.focus();
}

function describe(token) {
  const [name, meaning] = ORIGINS[token.origin];
  const by = token.source ? ` by ${token.source}` : "";
  const parts = [
    make(
      "p",
      { className: "tip-token" },
      make("code", { textContent: visible(token.text) }),
      ` · ${name}${token.origin === "accepted" ? by : ""}`,
    ),
    make("p", { textContent: meaning }),
  ];
  if (token.logprob == null) return parts;
  parts.push(make("p", {}, "Probability ", make("b", { textContent: percent(token.logprob) })));
  const others = (token.top_logprobs ?? []).map((one) => {
    const bar = make("i");
    bar.style.width = `${100 * Math.exp(one.logprob)}%`;
    const row = make(
      "li",
      {},
      make("code", { textContent: visible(one.text) }),
      make("span", { textContent: percent(one.logprob) }),
      bar,
    );
    if (one.id === token.id) row.className = "this";
    return row;
  });
  if (others.length) parts.push(make("ol", { ariaLabel: "Likeliest here" }, ...others));
  return parts;
}

function place(tip, span) {
  const token = span.getClientRects()[0];
  const { offsetWidth: width, offsetHeight: height } = tip;
  const left = Math.max(8, Math.min(token.left, document.documentElement.clientWidth - width - 8));
  const fitsBelow = token.bottom + 4 + height < document.documentElement.clientHeight;
  tip.style.left = `${left}px`;
  tip.style.top = `${fitsBelow ? token.bottom + 4 : Math.max(8, token.top - height - 4)}px`;
}

export function percent(logprob) {
  const value = 100 * Math.exp(logprob);
  return value < 0.1 && value > 0 ? "< 0.1%" : `${value.toFixed(value > 99.9 && value < 100 ? 2 : 1)}%`;
}

function visible(text = "") {
  const seen = text.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥");
  return seen.length > 40 ? `${seen.slice(0, 40)}…` : seen || "(no text yet)";
}
