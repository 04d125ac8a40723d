// What the settings say, as fields of a request. They live in the form alone: closing the page forgets them.
import { loaded } from "./api.js";
import { get } from "./ui.js";

const form = document.querySelector("#settings form");
const field = (name) => form.elements[name];
const number = (name) => (field(name).value === "" ? undefined : Number(field(name).value));

export const settings = {
  get key() {
    return field("key").value.trim();
  },
  get alternatives() {
    return field("alternatives").checked;
  },
};

let info = null;

// What the server has loaded; asked for once, and again where the answer was an error.
export async function server() {
  info ??= await loaded(settings.key);
  offerDrafters(info.drafts);
  return info;
}

// The body of a request; undefined fields are not sent and left to the server.
export async function request(conversation) {
  const { target } = await server();
  const system = field("system").value.trim();
  return {
    model: target,
    messages: system ? [{ role: "system", content: system }, ...conversation] : conversation,
    temperature: number("temperature"),
    top_p: number("top_p"),
    max_tokens: number("max_tokens"),
    seed: number("seed"),
    speculation: {
      enabled: field("enabled").checked,
      num_speculative_tokens: number("num_speculative_tokens"),
      rule: field("rule").value || undefined,
      drafter: field("drafter").value || undefined,
    },
  };
}

export function startSettings() {
  const dialog = get("settings");
  get("open-settings").addEventListener("click", () => dialog.showModal());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog && isOutside(dialog, event)) dialog.close();
  });
}

function isOutside(dialog, { clientX: x, clientY: y }) {
  const { left, right, top, bottom } = dialog.getBoundingClientRect();
  return x < left || x > right || y < top || y > bottom;
}

function offerDrafters(names) {
  if (field("drafter").length > 1) return;
  field("drafter").append(...names.map((name) => new Option(name)));
  get("drafter").hidden = names.length < 2;
}

// An error in words, where it happened. Where a key is missing, the settings open at its field.
export function reportError(place, error) {
  get(place).textContent = error.message;
  get(place).hidden = false;
  if (error.status !== 401) return;
  get("settings").showModal();
  field("key").focus();
}
