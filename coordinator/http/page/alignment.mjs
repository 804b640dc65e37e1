// Finds the part of the text that belongs to each token.

import { drawnLast } from "./round.mjs";

// A token whose text does not appear within this many further characters is skipped.
const LOOKAHEAD = 64;

/**
 * Cuts the text of an output into pieces of one token each.
 *
 * The text may arrive after its tokens, and a character may have several tokens: tokens wait for their text.
 * A piece is `{text, token}`; its token is null for text before the first one.
 */
export class Alignment {
  #queue = [];
  #text = "";
  #loose = null;

  /** Adds a round and returns the pieces that are now final, in reading order. */
  add(round) {
    this.#text += round.text;
    this.#queue.push(...inOrder(round));
    const pieces = [];
    while (this.#queue.length && this.#take(this.#queue[0], pieces)) this.#queue.shift();
    return pieces;
  }

  /** The remaining pieces, at the end of the output. */
  finish() {
    const pieces = this.#queue.filter((token) => token.origin === "rejected").map((token) => piece(token.text, token));
    if (this.#text) pieces.unshift(piece(this.#text, this.#loose));
    this.#queue = [];
    this.#text = "";
    return pieces;
  }

  #take(token, pieces) {
    if (token.origin === "rejected") {
      pieces.push(piece(token.text, token));
      return true;
    }
    if (!token.text) {
      this.#loose = token;
      return true;
    }
    const start = this.#text.indexOf(token.text);
    if (start < 0) return this.#text.length >= token.text.length + LOOKAHEAD;
    if (start > 0) pieces.push(piece(this.#text.slice(0, start), this.#loose));
    pieces.push(piece(token.text, token));
    this.#text = this.#text.slice(start + token.text.length);
    return true;
  }
}

/** The round's tokens in reading order: rejected tokens come before the correction. */
function inOrder(round) {
  const last = drawnLast(round.tokens);
  if (last?.origin !== "correction") return [...round.tokens, ...round.rejected];
  const place = round.tokens.indexOf(last);
  return [...round.tokens.slice(0, place), ...round.rejected, ...round.tokens.slice(place)];
}

function piece(text, token) {
  return { text, token };
}
