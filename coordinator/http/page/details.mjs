// The details of one token, in a panel next to it.

import { html } from "./elements.mjs";
import { counted, fateOf, probability, quoted } from "./words.mjs";

const GAP = 8;

/** The panel. It shows what the token's label tells screen readers. */
export class TokenDetails {
  #panel;

  constructor(panel) {
    this.#panel = panel;
    addEventListener("scroll", () => this.hide(), { passive: true });
    addEventListener("keydown", (event) => event.key === "Escape" && this.hide());
  }

  /** Shows a token's details next to its element. */
  show(token, beside) {
    this.#panel.replaceChildren(...contents(token));
    this.#panel.hidden = false;
    place(this.#panel, beside.getClientRects()[0] ?? beside.getBoundingClientRect());
  }

  hide() {
    this.#panel.hidden = true;
  }
}

function contents(token) {
  const title = html(
    "p",
    { className: "title" },
    html("code", {}, quoted(token)),
    html("span", { className: `chip ${token.origin}` }, token.origin === "target" ? "target alone" : token.origin),
  );
  const place_ = token.position === null ? `round ${token.step}` : `round ${token.step}, position ${token.position + 1}`;
  const rows = token.position === null ? [] : [probabilities(token)];
  return [title, ...rows, html("p", {}, fateOf(token)), html("p", { className: "note" }, `${place_}, id ${token.id}`)];
}

function probabilities(token) {
  return html(
    "div",
    { className: "probabilities" },
    ...bar("draft", token.draftProbability),
    ...bar("target", token.targetProbability),
  );
}

function bar(who, value) {
  const fill = html("span", { className: `fill ${who}` });
  fill.style.inlineSize = `${(value ?? 0) * 100}%`;
  const shown = value === null ? "not sent" : probability(value);
  return [html("span", {}, who), html("span", { className: "track" }, fill), html("span", { className: "value" }, shown)];
}

/** Below the element if there is room, else above it; within the window. */
function place(panel, rect) {
  const { offsetWidth: width, offsetHeight: height } = panel;
  const room = document.documentElement;
  const left = Math.min(Math.max(rect.left, GAP), room.clientWidth - width - GAP);
  const below = rect.bottom + GAP;
  const top = below + height > room.clientHeight ? Math.max(rect.top - height - GAP, GAP) : below;
  panel.style.left = `${Math.max(left, GAP)}px`;
  panel.style.top = `${top}px`;
}
