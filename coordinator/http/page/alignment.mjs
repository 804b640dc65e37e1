// Which part of the text belongs to which token.

// Characters that may go by before a token that does not show up in the text is given up.
const LOOKAHEAD = 64;

/**
 * Cuts the text of an output into pieces of one token each.
 *
 * The text may lag behind the tokens, and a character may take several of them, so tokens wait until their text has
 * come. A piece is `{text, token}`; its token is null for text before the first one.
 */
export class Alignment {
  #queue = [];
  #text = "";
  #loose = null;

  /** The pieces that became certain with a round, in order of reading. */
  add(round) {
    this.#text += round.text;
    this.#queue.push(...inOrder(round));
    const pieces = [];
    while (this.#queue.length && this.#take(this.#queue[0], pieces)) this.#queue.shift();
    return pieces;
  }

  /** The pieces that are left when the output is at its end. */
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

/** The round's tokens as they are read: what was rejected stands before what replaced it. */
function inOrder(round) {
  const last = round.tokens.at(-1);
  if (last?.origin !== "correction") return [...round.tokens, ...round.rejected];
  return [...round.tokens.slice(0, -1), ...round.rejected, last];
}

function piece(text, token) {
  return { text, token };
}
