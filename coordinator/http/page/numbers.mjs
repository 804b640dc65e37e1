// The four running numbers.

import { counted, duration, fixed, percent } from "./words.mjs";

const SOURCES = {
  own: "Its time was measured in this output.",
  earlier: "Its time was measured in an earlier output on this page.",
  verify:
    "No plain round was measured yet, so the time to verify several tokens is used. It is longer than a plain round, " +
    "so the speedup is overestimated. One run with K = 0 measures plain rounds.",
};

/** Shows a tally. `element` finds an element by its id. */
export class NumbersView {
  #element;

  constructor(element) {
    this.#element = element;
  }

  draw(tally, speedup) {
    const { draftCount, acceptedCount } = tally;
    this.#show("acceptance", percent(tally.acceptanceRate), draftCount ? `${acceptedCount} of ${draftCount}` : "nothing proposed");
    this.#show("tokens-per-round", fixed(tally.tokensPerRound, 2), counted(tally.roundCount, "round"));
    const first = tally.timeToFirstToken === null ? "" : `first after ${duration(tally.timeToFirstToken)}`;
    this.#show("tokens-per-second", fixed(tally.tokensPerSecond, tally.tokensPerSecond < 10 ? 1 : 0), first);
    this.#showSpeedup(speedup);
  }

  #showSpeedup(speedup) {
    if (speedup === null) return this.#show("speedup", "–", "");
    const isRough = speedup.source === "verify";
    const plain = `plain round ${isRough ? "at most " : ""}${duration(speedup.plainTime)}`;
    this.#show("speedup", `${isRough ? "≲ " : ""}${speedup.ratio.toFixed(2)}×`, plain);
    this.#element("speedup-source").textContent = SOURCES[speedup.source];
  }

  #show(id, value, note) {
    this.#element(id).textContent = value;
    this.#element(`${id}-note`).textContent = note;
  }
}
