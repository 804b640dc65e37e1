// Tokens, probabilities and times in words.

const DASH = "–";

/** The text of a token with visible white space; its id if it has no text. */
export function visible(token) {
  if (!token.text) return `#${token.id}`;
  const shown = token.text.replace(/\n/g, "↵").replace(/\t/g, "⇥");
  return shown.trim() ? shown : shown.replace(/ /g, "·");
}

/** The same in quotation marks. */
export function quoted(token) {
  return `“${visible(token)}”`;
}

/** A probability with its significant digits. */
export function probability(value) {
  if (value === null || value === undefined) return DASH;
  if (value >= 0.9995) return "1.00";
  return value >= 0.01 ? value.toFixed(2) : value >= 0.0005 ? value.toFixed(3) : "< 0.001";
}

export function percent(value) {
  return value === null ? DASH : `${Math.round(value * 100)} %`;
}

export function fixed(value, digits) {
  return value === null ? DASH : value.toFixed(digits);
}

/** Milliseconds as text; from one second on in seconds. */
export function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return DASH;
  if (milliseconds >= 1000) return `${(milliseconds / 1000).toFixed(2)} s`;
  return `${milliseconds.toFixed(milliseconds >= 100 ? 0 : 1)} ms`;
}

export function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/** The origin of a token, as one sentence. */
export function fateOf(token) {
  switch (token.origin) {
    case "accepted":
      return "Proposed by the draft, accepted by the target.";
    case "rejected":
      return rejection(token);
    case "correction":
      return `Drawn by the target in place of ${token.replaces ? quoted(token.replaces) : "a rejected proposal"}.`;
    case "bonus":
      if (token.isTree) return "Drawn by the target as a bonus, because a whole path of the tree was accepted.";
      return `Drawn by the target as a bonus, because ${allOf(token.proposedCount)} accepted.`;
    case "forced":
      return "The only token that the structured output allows here; no model was asked.";
    default:
      return token.step === 0
        ? "The first token, drawn by the target after it read the prompt."
        : "Drawn by the target; nothing was proposed in this round.";
  }
}

function rejection(token) {
  if (token.isBeside) return "Proposed by the draft; the target took another branch of the tree here.";
  if (!token.isFirstRejected) return "Proposed after a rejected token and dropped with it.";
  if (!token.replacedBy) return "Proposed by the draft, rejected by the target.";
  return `Proposed by the draft, rejected; the target drew ${quoted(token.replacedBy)} instead.`;
}

function allOf(count) {
  if (count === 1) return "the one proposed token was";
  return `all ${count ?? ""} proposed tokens were`.replace("  ", " ");
}

/** All details of a token, for screen readers. */
export function spoken(token) {
  const parts = [`${quoted(token)}, ${token.origin}, round ${token.step}`];
  if (token.position !== null) {
    if (token.draftProbability !== null) parts.push(`draft ${probability(token.draftProbability)}`);
    if (token.targetProbability !== null) parts.push(`target ${probability(token.targetProbability)}`);
  }
  return `${parts.join(", ")}. ${fateOf(token)}`;
}

/** The result of an output in one sentence. `how` is how it ended: finished, stopped, failed. */
export function resultOf(tally, how, seed) {
  const parts = [`${how}: ${counted(tally.tokenCount, "token")}`];
  if (tally.endTime) parts[0] += ` in ${duration(tally.endTime)}`;
  if (tally.acceptanceRate !== null) parts.push(`${percent(tally.acceptanceRate)} of the proposed tokens accepted`);
  else if (tally.roundCount) parts.push("nothing was proposed");
  if (tally.roundCount) parts.push(`${fixed(tally.tokensPerRound, 2)} tokens per round`);
  parts.push(`seed ${seed}`);
  return `${parts.join(", ")}.`;
}
