// The form for a request.

const USUAL_K = 5;

/** The form: calls `start(body)` with the body of a request, and `stop()`. */
export class RequestForm {
  #form;
  #start;
  #stop;

  constructor(form, { start, stop }) {
    this.#form = form;
    this.#start = form.querySelector("#start");
    this.#stop = form.querySelector("#stop");
    offerK(form.elements.num_speculative_tokens, USUAL_K);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!this.#start.disabled) start(bodyOf(new FormData(form)));
    });
    this.#stop.addEventListener("click", stop);
    form.elements.prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
    form.ownerDocument.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !this.#stop.disabled) stop();
    });
  }

  /** Sets the server's limits, from the model's entry in /v1/models. */
  setLimits({ max_num_speculative_tokens: longestProposal, max_model_len: longestText }) {
    if (Number.isInteger(longestProposal)) offerK(this.#form.elements.num_speculative_tokens, longestProposal);
    if (Number.isInteger(longestText)) this.#form.elements.max_tokens.max = longestText - 1;
  }

  /** Enables Start or Stop. The focus moves from one to the other. */
  setRunning(isRunning) {
    const [from, to] = isRunning ? [this.#start, this.#stop] : [this.#stop, this.#start];
    to.disabled = false;
    if (this.#form.ownerDocument.activeElement === from) to.focus();
    from.disabled = true;
  }
}

/** The body of the request; a seed is drawn here if none is given, so that the output can be repeated. */
export function bodyOf(fields) {
  const body = {
    prompt: fields.get("prompt").replace(/\r\n/g, "\n"),
    max_tokens: Number(fields.get("max_tokens")),
    temperature: Number(fields.get("temperature")),
    seed: fields.get("seed") ? Number(fields.get("seed")) : Math.floor(Math.random() * 2 ** 31),
    stream: true,
    stream_options: { include_usage: true },
    include_rounds: true,
  };
  for (const name of ["rule", "drafter", "work_ahead"]) if (fields.get(name)) body[name] = fields.get(name);
  if (fields.get("num_tree_tokens")) body.num_tree_tokens = Number(fields.get("num_tree_tokens"));
  if (fields.get("num_speculative_tokens")) body.num_speculative_tokens = Number(fields.get("num_speculative_tokens"));
  return body;
}

/** The choices of K up to a limit, as `[value, name]`; the empty value leaves K to the server. */
export function choicesOfK(limit) {
  const numbers = Array.from({ length: limit + 1 }, (_, k) => [String(k), k === 0 ? "0, target alone" : String(k)]);
  return [["", "auto"], ...numbers];
}

/** Fills the list of K. The choice is kept, or lowered to the limit. */
function offerK(select, limit) {
  const chosen = select.options.length ? select.value : String(USUAL_K);
  select.replaceChildren(...choicesOfK(limit).map(([value, name]) => new Option(name, value)));
  select.value = Number(chosen) > limit ? String(limit) : chosen;
}
