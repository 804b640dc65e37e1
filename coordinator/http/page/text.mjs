// The text, token by token.

import { copyText } from "./clipboard.mjs";
import { html } from "./elements.mjs";
import { spoken, visible } from "./words.mjs";

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
const COPY_NOTE_MS = 1500;

/** A list of tokens: one Tab stop, arrow keys within, details of the selected token. */
export class TextView {
  #list;
  #details;
  #tokens = new Map();
  #text = "";

  constructor(list, details, { showRejected, copy }) {
    this.#list = list;
    this.#details = details;
    list.replaceChildren();
    list.removeAttribute("aria-activedescendant");
    showRejected.onchange = () => list.classList.toggle("without-rejected", !showRejected.checked);
    copy.onclick = () => this.#copy(copy);
    list.onkeydown = (event) => this.#onKey(event);
    list.onfocus = () => this.#chosen() ?? (list.matches(":focus-visible") && this.#choose(list.firstElementChild));
    list.onblur = () => details.hide();
    list.onclick = (event) => this.#choose(event.target.closest(".token"));
    list.onpointerover = (event) => this.#onHover(event.target.closest(".token"));
    list.onpointerleave = () => details.hide();
  }

  /** Appends pieces of text. */
  add(pieces) {
    this.#list.append(...pieces.map((piece) => this.#span(piece)));
  }

  #span({ text, token }) {
    if (token?.origin !== "rejected") this.#text += text;
    const shown = token?.origin === "rejected" ? visible(token) : text;
    const span = html("span", { className: `token ${token?.origin ?? "target"}`, role: "option" }, shown);
    span.id = `token-${this.#list.childElementCount + this.#tokens.size}-${this.#tokens.size}`;
    span.setAttribute("aria-selected", "false");
    if (text.startsWith("\n")) span.classList.add("breaks");
    if (token?.isFirstRejected === false) span.classList.add("dropped");
    if (token) {
      span.setAttribute("aria-label", spoken(token));
      span.dataset.step = token.step;
    }
    this.#tokens.set(span, token);
    return span;
  }

  #onKey(event) {
    const chosen = this.#chosen();
    if (event.key === "Home") this.#choose(this.#list.firstElementChild);
    else if (event.key === "End") this.#choose(this.#list.lastElementChild);
    else if (event.key in STEPS) this.#choose(this.#next(chosen, STEPS[event.key]));
    else return;
    event.preventDefault();
  }

  /** The next visible token. */
  #next(span, step) {
    const towards = step > 0 ? "nextElementSibling" : "previousElementSibling";
    let next = span ? span[towards] : this.#list.firstElementChild;
    while (next && next.offsetParent === null) next = next[towards];
    return next;
  }

  #onHover(span) {
    if (span) this.#show(span);
    else this.#details.hide();
  }

  #choose(span) {
    if (!span) return;
    this.#chosen()?.setAttribute("aria-selected", "false");
    span.setAttribute("aria-selected", "true");
    this.#list.setAttribute("aria-activedescendant", span.id);
    span.scrollIntoView({ block: "nearest" });
    this.#show(span);
  }

  #chosen() {
    return this.#list.querySelector('[aria-selected="true"]');
  }

  #show(span) {
    const token = this.#tokens.get(span);
    if (token) this.#details.show(token, span);
  }

  async #copy(button) {
    const isThere = await copyText(this.#text);
    button.textContent = isThere ? "Copied" : "Could not be copied";
    setTimeout(() => (button.textContent = "Copy"), COPY_NOTE_MS);
  }
}
