// Puts the page together: its two views, and what the server has loaded.
import { startChat } from "./chat.js";
import { startRace } from "./race.js";
import { server, settings, startSettings } from "./settings.js";
import { installTip } from "./tokens.js";
import { get } from "./ui.js";

function showView() {
  const name = location.hash === "#race" ? "race" : "chat";
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = link.hash === `#${name}`;
    get(link.hash.slice(1)).hidden = !isHere;
    link.ariaCurrent = isHere ? "page" : null;
  }
  if (matchMedia("(pointer: fine)").matches) get(`${name}-prompt`).focus({ preventScroll: true }); // elsewhere a keyboard would pop up
}

async function showServer() {
  try {
    get("server").textContent = describe(await server());
  } catch (error) {
    get("server").textContent = error.message;
  }
}

function describe({ target, memory_bytes: bytes, threads, speculation: { active, reason }, version }) {
  return `${target}, speculation ${active ? "on" : "off"}: ${reason}. Up to ${(bytes / 1e9).toFixed(2)} GB, ${threads} thread${threads === 1 ? "" : "s"}, version ${version}.`;
}

installTip(get("tip")); // first, for Escape closes a tip before it stops an answer
startChat();
startRace();
startSettings();
get("settings").addEventListener("close", () => settings.key && showServer()); // a key may have been missing before
addEventListener("hashchange", showView);
showView();
showServer();
