// The part of the coordinator's HTTP interface that the page uses.

import { eventsOf } from "./events.mjs";
import { connectionLost, failureOf, failureOfChunk, UNAUTHENTICATED, unreachable } from "./failure.mjs";

/**
 * The served model, from /v1/models, or null without an answer.
 *
 * Throws a Failure if a token is required that `headers` do not carry.
 */
export async function fetchModel(headers) {
  const answer = await fetch("/v1/models", { headers }).catch(() => null);
  if (answer?.status === UNAUTHENTICATED) throw failureOf(answer.status, null, null);
  const said = answer?.ok ? await answer.json().catch(() => null) : null;
  return said?.data?.[0] ?? null;
}

/**
 * The chunks of a completion as they come. Ends with `[DONE]`.
 *
 * Throws a Failure for no answer, an error, or a missing end; an AbortError if `signal` is aborted.
 */
export async function* streamCompletion(body, headers, signal) {
  const answer = await post(body, headers, signal);
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

async function post(body, headers, signal) {
  let answer;
  try {
    answer = await fetch("/v1/completions", {
      method: "POST",
      headers: { ...headers, "content-type": "application/json" },
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
