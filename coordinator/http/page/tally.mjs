// The running numbers of one output, counted as the coordinator counts them. Times are in milliseconds.

/** Counts rounds as they come. Round 0, which reads the prompt and gives the first token, is not counted. */
export class Tally {
  tokenCount = 0;
  roundCount = 0;
  draftCount = 0;
  acceptedCount = 0;
  drafted = [];
  accepted = [];
  timeToFirstToken = null;
  endTime = 0;
  #firstEnd = 0;
  #plainTime = 0;
  #plainCount = 0;
  #verifyTime = 0;
  #draftTime = 0;
  /** Rounds whose proposal was ready, or begun, when they began. */
  aheadCount = 0;

  add(round) {
    const previousEnd = this.endTime;
    this.tokenCount += round.tokens.length;
    if (round.verify) this.endTime = Math.max(this.endTime, round.verify.end);
    if (round.step === 0) return this.#addFirst();
    this.roundCount += 1;
    this.#addProposals(round.proposed);
    this.#verifyTime += round.verify?.elapsed ?? 0;
    if (round.draft) this.#draftTime += Math.min(round.draft.elapsed, Math.max(round.draft.end - previousEnd, 0));
    if (round.ahead === "hit" || round.ahead === "late") this.aheadCount += 1;
    if (!round.proposed.length && !round.draft) {
      this.#plainTime += this.endTime - previousEnd;
      this.#plainCount += 1;
    }
  }

  /** Accepted per proposed token, or null without proposals. */
  get acceptanceRate() {
    return this.draftCount ? this.acceptedCount / this.draftCount : null;
  }

  /** Output tokens per round, the first token left out, or null without rounds. */
  get tokensPerRound() {
    return this.roundCount ? (this.tokenCount - 1) / this.roundCount : null;
  }

  /** Tokens over the time from the request's arrival, or null before the first. */
  get tokensPerSecond() {
    return this.endTime > 0 ? (this.tokenCount / this.endTime) * 1000 : null;
  }

  /** Mean time from the end of one round to that of the next, or null without rounds. */
  get roundTime() {
    return this.roundCount ? (this.endTime - this.#firstEnd) / this.roundCount : null;
  }

  /** Mean time of the rounds without a proposal, or null if there were none. */
  get plainRoundTime() {
    return this.#plainCount ? this.#plainTime / this.#plainCount : null;
  }

  /** Mean time of the calls to the target, or null without rounds. */
  get verifyTime() {
    return this.roundCount ? this.#verifyTime / this.roundCount : null;
  }

  /** Mean time for which a round waited for the draft, or null without rounds: what it did ahead is not in it. */
  get draftTime() {
    return this.roundCount ? this.#draftTime / this.roundCount : null;
  }

  /** Share of the rounds that proposed a token at each position in which it was accepted. */
  get acceptanceByPosition() {
    return this.drafted.map((count, position) => (this.accepted[position] ?? 0) / count);
  }

  #addFirst() {
    this.timeToFirstToken = this.endTime;
    this.#firstEnd = this.endTime;
  }

  #addProposals(proposed) {
    const accepted = proposed.filter((token) => token.accepted).length;
    const longest = Math.max(0, ...proposed.map((token) => token.position + 1)); // of a tree: its longest path
    for (let position = 0; position < longest; position += 1) {
      this.drafted[position] = (this.drafted[position] ?? 0) + 1;
      this.accepted[position] = (this.accepted[position] ?? 0) + (position < accepted ? 1 : 0);
    }
    this.draftCount += proposed.length;
    this.acceptedCount += accepted;
  }
}

/**
 * How much longer the target alone would have taken: tokens per round * time of a plain round / time of a round.
 *
 * The time of a plain round is the first known of: the mean of this output's plain rounds; `measured`, that of an
 * earlier output or null; the mean time of the calls to the target, too long because they check several tokens. Returns
 * null before the first round, else `{ratio, plainTime, source}` with the source "own", "earlier" or "verify".
 */
export function speedupOf(tally, measured) {
  const source = tally.plainRoundTime !== null ? "own" : measured !== null ? "earlier" : "verify";
  const plainTime = { own: tally.plainRoundTime, earlier: measured, verify: tally.verifyTime }[source];
  if (!plainTime || !tally.roundTime) return null;
  return { ratio: (tally.tokensPerRound * plainTime) / tally.roundTime, plainTime, source };
}
