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
  const proposed = round.proposed.length ? proposalsOf(round) : [html("span", { className: "note" }, nothing)];
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

/** A chain as its tokens; a tree as a list of branches, each with the branches that follow it. */
function proposalsOf(round) {
  return round.isTree ? [branches(round.proposed, -1)] : round.proposed.map(chip);
}

function branches(proposed, parent) {
  const own = proposed.filter((token) => token.parent === parent);
  const items = own.map((token) => {
    const isLast = !proposed.some((other) => other.parent === token.index);
    return html("li", {}, chip(token), ...(isLast ? [] : [branches(proposed, token.index)]));
  });
  return html("ul", { className: "tree" }, ...items);
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
  const who = token.drafts?.length ? ` Proposed by ${token.drafts.join(", ")}.` : "";
  return `${fateOf(token)} Draft ${probability(token.draftProbability)}, target ${probability(token.targetProbability)}.${who}`;
}

function meter(who, value) {
  const fill = html("span", { className: `fill ${who}` });
  fill.style.inlineSize = `${(value ?? 0) * 100}%`;
  return html("span", { className: "track", "aria-hidden": "true" }, fill);
}
