// One round from one chunk of the stream, as plain data with every default filled in.

/** The origins of a token: which model drew it, and whether it was kept. */
export const ORIGINS = ["accepted", "correction", "bonus", "target", "forced", "rejected"];

const AHEAD = ["hit", "late", "miss", "plain"];

/**
 * A round, or null for a chunk that committed nothing.
 *
 * `tokens` are the committed and `rejected` the rejected tokens, both with all their details; `start` and
 * `end` of `draft` and `verify` are in milliseconds since the request arrived, null for a call that was not made.
 */
export function roundOf(chunk) {
  const said = chunk.specpair;
  if (!said?.tokens?.length && !said?.round) return null;
  const report = said.round ?? {};
  const step = report.step ?? 0;
  const proposed = proposals(report.proposed ?? [], step);
  const accepted = proposed.filter((token) => token.accepted);
  const committed = (said.tokens ?? []).map((token, index) => committedToken(token, accepted[index], step));
  const isTree = (report.proposed ?? []).some((token) => token.parent_index !== undefined);
  const ends = accepted.at(-1)?.index ?? -1;
  for (const token of isTree ? proposed.filter((one) => !one.accepted) : []) {
    token.isFirstRejected = false;
    token.isBeside = token.parent !== ends && isOn(token.parent, proposed);
  }
  // Of a tree only those that were rejected where the path ended: they are what the next token stands in place of.
  const rejected = proposed.filter((token) => !token.accepted && (!isTree || token.parent === ends));
  explain(committed, rejected, proposed.length, isTree);
  return {
    step,
    text: chunk.choices?.[0]?.text ?? "",
    tokens: committed,
    proposed,
    rejected,
    isTree,
    draft: callOf(report.draft),
    verify: callOf(report.verify),
    rowCount: report.batch_token_count ?? 0,
    ahead: aheadOf(report.ahead),
  };
}

/** What working ahead gave: "hit", "late", "miss" or "plain"; null if the draft was not working ahead. */
function aheadOf(name) {
  const outcome = String(name ?? "").replace(/^AHEAD_OUTCOME_/, "").toLowerCase();
  return AHEAD.includes(outcome) ? outcome : null;
}

/** The proposed tokens, each with its parent: the token that it follows, by its index; -1 for the last committed one. */
function proposals(reported, step) {
  const made = [];
  reported.forEach((token, index) => {
    const parent = token.parent_index ?? index - 1;
    made.push({ ...proposal(token, (made[parent]?.position ?? -1) + 1, step), index, parent, drafts: token.draft_names ?? [] });
  });
  return made;
}

function isOn(index, proposed) {
  return index === -1 || proposed[index].accepted;
}

function proposal(token, position, step) {
  return {
    id: token.id ?? 0,
    text: token.text ?? "",
    origin: token.accepted ? "accepted" : "rejected",
    accepted: token.accepted ?? false,
    step,
    position,
    targetProbability: token.target_probability ?? null,
    draftProbability: token.draft_probability ?? null,
  };
}

function committedToken(token, proposed, step) {
  const origin = originOf(token.origin);
  if (origin === "accepted" && proposed) return proposed;
  return { id: token.id ?? 0, text: token.text ?? "", origin, step, position: null };
}

function originOf(name) {
  const origin = String(name ?? "").replace(/^TOKEN_ORIGIN_/, "").toLowerCase();
  return ORIGINS.includes(origin) ? origin : "target";
}

/** Links a correction and the rejected token that it replaces; gives a bonus its number of proposed tokens. */
function explain(committed, rejected, proposedCount, isTree) {
  const last = drawnLast(committed);
  if (last?.origin === "correction" && rejected.length) last.replaces = rejected[0];
  if (last?.origin === "bonus") Object.assign(last, { proposedCount, isTree });
  rejected.forEach((token, index) => {
    token.isFirstRejected = isTree || index === 0;
    if (token.isFirstRejected && last?.origin === "correction") token.replacedBy = last;
  });
}

/** The target's own token of a round: the last one that was drawn, before those that it forces. */
export function drawnLast(committed) {
  return committed.findLast((token) => token.origin !== "forced");
}

function callOf(times) {
  if (!times) return null;
  const [start, elapsed, queue, compute] = ["start_us", "elapsed_us", "queue_us", "compute_us"].map(
    (name) => Number(times[name] ?? 0) / 1000,
  );
  // Time that is neither queue nor compute is network time, assumed to be equal in both directions.
  const computeStart = start + queue + Math.max(elapsed - queue - compute, 0) / 2;
  return { start, end: start + elapsed, elapsed, compute, computeStart };
}
