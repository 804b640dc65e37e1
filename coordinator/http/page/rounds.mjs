// The table of rounds.

import { html } from "./elements.mjs";
import { duration, fateOf, probability, spoken, visible } from "./words.mjs";

/** A table with a row for each round; it scrolls to the newest one unless the user has scrolled up. */
export class RoundsView {
  #body;
  #scroll;

  constructor(body, scroll) {
    this.#body = body;
    this.#scroll = scroll;
    body.replaceChildren();
  }

  add(rounds) {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroll;
    const isAtEnd = scrollTop + clientHeight >= scrollHeight - 8;
    this.#body.append(...rounds.map(row));
    if (isAtEnd) this.#scroll.scrollTop = this.#scroll.scrollHeight;
  }
}

function row(round) {
  const own = round.tokens.filter((token) => token.origin !== "accepted");
  const nothing = round.step === 0 ? "reads the prompt" : round.draft ? "the draft had no proposal" : "draft not asked";
  const proposed = round.proposed.length ? round.proposed.map(chip) : [html("span", { className: "note" }, nothing)];
  return html(
    "tr",
    {},
    html("th", { scope: "row" }, String(round.step)),
    html("td", {}, html("div", { className: "chips" }, ...proposed)),
    html("td", {}, html("div", { className: "chips" }, ...own.map(chip))),
    html("td", { className: "number" }, duration(round.draft?.elapsed)),
    html("td", { className: "number" }, duration(round.verify?.elapsed)),
  );
}

function chip(token) {
  const made = html("span", { className: `proposal ${token.origin}`, title: titleOf(token) });
  made.append(html("code", { "aria-hidden": "true" }, visible(token)), html("span", { className: "unseen" }, spoken(token)));
  if (token.isFirstRejected === false) made.classList.add("dropped");
  if (token.position !== null) made.append(meter("draft", token.draftProbability), meter("target", token.targetProbability));
  return made;
}

function titleOf(token) {
  if (token.position === null) return fateOf(token);
  return `${fateOf(token)} Draft ${probability(token.draftProbability)}, target ${probability(token.targetProbability)}.`;
}

function meter(who, value) {
  const fill = html("span", { className: `fill ${who}` });
  fill.style.inlineSize = `${(value ?? 0) * 100}%`;
  return html("span", { className: "track", "aria-hidden": "true" }, fill);
}
