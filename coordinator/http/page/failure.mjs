// Errors as messages for people.

export const UNAUTHENTICATED = 401;

/** A failed request; its message can be shown. */
export class Failure extends Error {
  name = "Failure";
  /** Whether the request needs a token. */
  wantsToken = false;
}

const WANTS_TOKEN = "This coordinator requires a token that it knows.";

/** The failure for an answer other than 200. `retryAfter` is its Retry-After header or null. */
export function failureOf(status, body, retryAfter) {
  const said = messageOf(body);
  const wait = waitOf(retryAfter);
  if (status === UNAUTHENTICATED) return Object.assign(new Failure(WANTS_TOKEN), { wantsToken: true });
  if (status === 429) return new Failure(sentences("All places are taken.", said, wait));
  if (status === 503) return new Failure(sentences("The models cannot be reached now.", said, wait));
  if (status >= 500) return new Failure(sentences("Something went wrong in the coordinator.", said, wait));
  return new Failure(sentences("This request cannot be served.", said));
}

/** The failure for an `{"error": ...}` in the middle of a stream. */
export function failureOfChunk(body) {
  return new Failure(sentences("The request failed before its end.", messageOf(body)));
}

/** No answer at all. */
export function unreachable() {
  return new Failure("The coordinator cannot be reached. Is it still running?");
}

/** The connection ended before the output did. */
export function connectionLost(tokenCount) {
  const count = tokenCount === 1 ? "1 token" : `${tokenCount} tokens`;
  return new Failure(`The connection was lost after ${count}. The tokens received so far are below.`);
}

function messageOf(body) {
  const error = body?.error;
  const message = typeof error === "string" ? error : error?.message;
  return typeof message === "string" ? message.slice(0, 500) : "";
}

function waitOf(retryAfter) {
  const seconds = Number.parseInt(retryAfter ?? "", 10);
  if (!(seconds >= 0)) return "Please try again in a moment.";
  return seconds <= 1 ? "Please try again in a second." : `Please try again in ${seconds} seconds.`;
}

function sentences(...parts) {
  return parts.filter(Boolean).map((part) => (/[.!?]$/.test(part) ? part : `${part}.`)).join(" ");
}
