// The figures under an answer, live while it comes.
import { legend } from "./tokens.js";
import { make, seconds } from "./ui.js";

const FIGURES = [
  ["speed", "tokens/s", "After the first chunk, by this browser’s clock."],
  ["first", "to first token", "From the request to the first token."],
  ["rate", "acceptance rate", "Accepted by drafted tokens."],
  [
    "length",
    "acceptance length",
    "Mean acceptance length: accepted tokens of a round with a draft, and the one the model adds.",
  ],
];

export class Stats {
  #values = {};
  #legend = legend();

  constructor(element, run) {
    this.run = run;
    const figures = make("dl", { className: "figures" });
    for (const [name, label, meaning] of FIGURES) {
      this.#values[name] = make("dd", { textContent: "–" });
      figures.append(make("div", { title: meaning }, make("dt", { textContent: label }), this.#values[name]));
    }
    this.note = make("p", { className: "note" });
    element.replaceChildren(figures, this.#legend.list, this.note);
  }

  show() {
    const { speed, firstAt, acceptanceRate, counts, speculation } = this.run;
    const rate = speculation?.acceptance_rate ?? acceptanceRate;
    this.#put("speed", speed?.toFixed(1));
    this.#put("first", firstAt === undefined ? null : seconds(firstAt));
    this.#put("rate", rate == null ? null : `${Math.round(100 * rate)}%`);
    this.#put("length", (speculation?.mean_acceptance_length ?? soFar(counts))?.toFixed(2));
    this.#legend.show(counts);
    this.note.textContent = speculation?.active === false ? `Speculation off: ${speculation.reason}.` : "";
  }

  #put(name, text) {
    this.#values[name].textContent = text ?? "–";
  }
}

// A round with a draft ends in one recovered or bonus token: so the mean is known before the server tells it.
function soFar({ accepted, recovered, bonus }) {
  const rounds = recovered + bonus;
  return rounds ? 1 + accepted / rounds : null;
}
