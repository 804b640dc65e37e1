// The bearer token, where the coordinator requires one. It is kept only in the field: closing the page forgets it.

/** A field that is hidden until a token is required. */
export class TokenField {
  #field;
  #input;

  constructor(field) {
    this.#field = field;
    this.#input = field.querySelector("input");
  }

  /** Headers that carry the token, if there is one. */
  get headers() {
    const token = this.#input.value.trim();
    return token ? { authorization: `Bearer ${token}` } : {};
  }

  show() {
    this.#field.hidden = false;
  }

  focus() {
    this.#input.focus();
  }
}
