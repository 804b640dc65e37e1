// The request as people type it.

const MAX_K = 16;
const USUAL_K = "5";

/** The form: calls `start(body)` with the body of a request, and `stop()`. */
export class RequestForm {
  #form;
  #start;
  #stop;

  constructor(form, { start, stop }) {
    this.#form = form;
    this.#start = form.querySelector("#start");
    this.#stop = form.querySelector("#stop");
    offerK(form.elements.num_speculative_tokens);
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

  /** Start or Stop; whoever had the focus on the one finds it on the other. */
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
    rule: fields.get("rule"),
    seed: fields.get("seed") ? Number(fields.get("seed")) : Math.floor(Math.random() * 2 ** 31),
    stream: true,
    stream_options: { include_usage: true },
    include_rounds: true,
  };
  if (fields.get("drafter")) body.drafter = fields.get("drafter");
  if (fields.get("num_speculative_tokens")) body.num_speculative_tokens = Number(fields.get("num_speculative_tokens"));
  return body;
}

function offerK(select) {
  select.append(new Option("auto", ""));
  for (let k = 0; k <= MAX_K; k++) select.append(new Option(k === 0 ? "0, target alone" : String(k), String(k)));
  select.value = USUAL_K;
}
