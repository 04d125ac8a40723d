// What every part of the page uses to build elements, to speak and to be spoken to.

export const get = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// Tells a screen reader, once, what it cannot see happen.
export function say(words) {
  get("status").textContent = words;
}

export function seconds(ms) {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
}

// Changes the page. A reader at its end stays at its end.
export function follow(change) {
  const page = document.scrollingElement;
  const isAtEnd = page.scrollHeight - page.scrollTop - page.clientHeight < 80;
  change();
  if (isAtEnd) page.scrollTop = page.scrollHeight;
}

// Calls `draw` at most once per frame, however often the function it returns is called.
export function oncePerFrame(draw) {
  let isDue = false;
  return () => {
    if (!isDue) requestAnimationFrame(() => ((isDue = false), draw()));
    isDue = true;
  };
}

let active = null; // the answer or race that runs: one at a time, or each would be slower for the other

// A form around a text box. Enter or the button starts `run(text, signal)`; while that runs, the button and Escape stop
// it. Shift + Enter starts a line, and Enter that ends the composition of a character sends nothing.
export function composer(form, run) {
  const box = form.querySelector("textarea");
  const button = form.querySelector("button");
  const label = button.textContent;
  let running = null;
  const start = async (text) => {
    if (running || !text.trim()) return;
    active?.abort();
    active = running = new AbortController();
    button.textContent = "Stop";
    box.required = false;
    try {
      await run(text, running.signal);
    } finally {
      if (active === running) active = null;
      running = null;
      button.textContent = label;
      box.required = true;
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (running) running.abort();
    else start(box.value);
  });
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!running) form.requestSubmit();
  });
  box.addEventListener("input", () => {
    box.style.height = "";
    box.style.height = `${Math.min(box.scrollHeight + 2, 240)}px`;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !document.querySelector("dialog[open]")) running?.abort();
  });
  return start;
}
