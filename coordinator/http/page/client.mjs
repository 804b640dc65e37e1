// The coordinator's HTTP interface, as far as the page needs it.

import { eventsOf } from "./events.mjs";
import { connectionLost, failureOf, failureOfChunk, unreachable } from "./failure.mjs";

/** The target that serves, as /v1/models has it, or null if nobody says. */
export async function fetchModel() {
  try {
    const answer = await fetch("/v1/models");
    return answer.ok ? ((await answer.json()).data?.[0] ?? null) : null;
  } catch {
    return null;
  }
}

/**
 * The chunks of a completion as they come. Ends with `[DONE]`.
 *
 * Throws a Failure if there is no answer, an error for an answer, or no proper end; an AbortError if `signal` says stop.
 */
export async function* streamCompletion(body, signal) {
  const answer = await post(body, signal);
  let tokenCount = 0;
  try {
    for await (const data of eventsOf(answer.body)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw failureOfChunk(chunk);
      tokenCount += chunk.specpair?.tokens?.length ?? 0;
      yield chunk;
    }
  } catch (error) {
    signal.throwIfAborted();
    throw error instanceof TypeError || error instanceof SyntaxError ? connectionLost(tokenCount) : error;
  }
  signal.throwIfAborted();
  throw connectionLost(tokenCount);
}

async function post(body, signal) {
  let answer;
  try {
    answer = await fetch("/v1/completions", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
  } catch (error) {
    signal.throwIfAborted();
    throw unreachable();
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => null);
  throw failureOf(answer.status, said, answer.headers.get("retry-after"));
}
