// Acceptance by position, as bars.

import { html } from "./elements.mjs";
import { percent } from "./words.mjs";

/** A bar for each position of a proposal. */
export class PositionsView {
  #list;
  #note;

  constructor(list, note) {
    this.#list = list;
    this.#note = note;
    list.replaceChildren();
  }

  draw(tally) {
    const rates = tally.acceptanceByPosition;
    this.#note.textContent = rates.length
      ? "How often the token at each position of a proposal was accepted."
      : "Nothing was proposed yet.";
    while (this.#list.children.length < rates.length) this.#list.append(bar(this.#list.children.length + 1));
    rates.forEach((rate, position) => fill(this.#list.children[position], rate, tally, position));
  }
}

function bar(number) {
  const track = html("span", { className: "track" }, html("span", { className: "fill" }));
  return html("li", {}, html("span", { className: "name" }, String(number)), track, html("span", { className: "value" }));
}

function fill(item, rate, tally, position) {
  item.querySelector(".fill").style.inlineSize = `${rate * 100}%`;
  item.querySelector(".value").textContent = percent(rate);
  item.title = `${tally.accepted[position] ?? 0} of ${tally.drafted[position]} rounds`;
}
