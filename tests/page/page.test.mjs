// The page's own logic, without a browser: events out of bytes, rounds out of chunks, running numbers out of rounds.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Alignment } from "../../coordinator/http/page/alignment.mjs";
import { EventParser } from "../../coordinator/http/page/events.mjs";
import { connectionLost, failureOf, failureOfChunk } from "../../coordinator/http/page/failure.mjs";
import { bodyOf, choicesOfK } from "../../coordinator/http/page/form.mjs";
import { roundOf } from "../../coordinator/http/page/round.mjs";
import { roundUp, tickLabel, ticksOf } from "../../coordinator/http/page/scale.mjs";
import { speedupOf, Tally } from "../../coordinator/http/page/tally.mjs";
import { duration, fateOf, probability, quoted, resultOf, spoken, visible } from "../../coordinator/http/page/words.mjs";

const call = (start, elapsed) => ({ start_us: start, elapsed_us: elapsed, compute_us: elapsed / 2 });

function chunk(step, tokens, proposed, draft, verify) {
  return { choices: [{ text: "x" }], specpair: { tokens, round: { step, proposed, draft, verify } } };
}

const PREFILL = chunk(0, [{ id: 1, text: "a", origin: "target" }], [], undefined, call(0, 4000));
const SPECULATED = chunk(
  1,
  [{ id: 2, origin: "accepted" }, { id: 9, origin: "correction" }],
  [
    { id: 2, accepted: true, target_probability: 0.5, draft_probability: 0.25 },
    { id: 3, target_probability: 0.1, draft_probability: 0.9 },
    { id: 4, target_probability: 0.2, draft_probability: 0.3 },
  ],
  call(5000, 1000),
  call(6000, 4000),
);
const PLAIN = chunk(2, [{ id: 5, origin: "target" }], [], undefined, call(10000, 4000));

test("events come whole, however the bytes are cut", () => {
  const text = 'data: {"a":1}\n\n: comment\n\ndata: two\r\ndata: lines\r\n\r\ndata: [DONE]\n\n';
  for (const size of [1, 2, 3, 7, text.length]) {
    const parser = new EventParser();
    const events = [];
    for (let i = 0; i < text.length; i += size) events.push(...parser.push(text.slice(i, i + size)));
    assert.deepEqual(events, ['{"a":1}', "two\nlines", "[DONE]"]);
  }
});

test("a round says what became of each proposed token", () => {
  const round = roundOf(SPECULATED);
  assert.deepEqual(round.tokens.map((token) => token.origin), ["accepted", "correction"]);
  assert.deepEqual(round.rejected.map((token) => [token.id, token.isFirstRejected]), [[3, true], [4, false]]);
  assert.equal(round.rejected[0].replacedBy.id, 9);
  assert.equal(round.tokens[0].draftProbability, 0.25);
  assert.deepEqual([round.draft.start, round.draft.end, round.verify.end], [5, 6, 10]);
});

test("forced tokens follow the correction that came before them, and change nothing of the round", () => {
  const forced = structuredClone(SPECULATED);
  forced.specpair.tokens.push({ id: 7, text: ":", origin: "TOKEN_ORIGIN_FORCED" });
  const round = roundOf(forced);
  assert.deepEqual(round.tokens.map((token) => token.origin), ["accepted", "correction", "forced"]);
  assert.equal(round.rejected[0].replacedBy.id, 9);
  const alignment = new Alignment();
  const pieces = alignment.add(aligned("a two:", [["a"], [" two", "correction"], [":", "forced"]], [" cat"]));
  pieces.push(...alignment.finish());
  assert.deepEqual(shown(pieces), [["a", "accepted"], [" cat", "rejected"], [" two", "correction"], [":", "forced"]]);
});

test("what the draft did ahead does not count as time that a round waited for it", () => {
  const tally = new Tally();
  const prepared = structuredClone(SPECULATED);
  prepared.specpair.round.step = 2;
  prepared.specpair.round.ahead = "AHEAD_OUTCOME_HIT";
  prepared.specpair.round.draft = call(7000, 2000); // while the round before was verified, until 10000
  prepared.specpair.round.verify = call(10000, 4000);
  for (const one of [PREFILL, SPECULATED, prepared]) tally.add(roundOf(one));
  assert.deepEqual([roundOf(SPECULATED).ahead, roundOf(prepared).ahead], [null, "hit"]);
  assert.deepEqual([tally.draftTime, tally.aheadCount], [0.5, 1]);
});

const TREE = chunk(
  1,
  [{ id: 2, origin: "accepted" }, { id: 6, origin: "accepted" }, { id: 9, origin: "correction" }],
  [
    { id: 2, accepted: true, parent_index: -1, draft_names: ["a", "b"] },
    { id: 3, parent_index: -1, draft_names: ["b"] },
    { id: 4, parent_index: 0 },
    { id: 5, parent_index: 1 },
    { id: 6, accepted: true, parent_index: 0 },
    { id: 7, parent_index: 4 },
    { id: 8, parent_index: 4 },
  ],
  call(5000, 1000),
  call(6000, 4000),
);

test("a tree says which path was taken, and what stood beside it", () => {
  const round = roundOf(TREE);
  assert.ok(round.isTree && !roundOf(SPECULATED).isTree);
  assert.deepEqual(round.tokens.map((token) => [token.id, token.position]), [[2, 0], [6, 1], [9, null]]);
  assert.deepEqual(round.proposed.map((token) => token.position), [0, 0, 1, 1, 1, 2, 2]);
  assert.deepEqual(round.rejected.map((token) => token.id), [7, 8], "those in whose place the correction stands");
  assert.deepEqual(round.proposed.filter((token) => token.isBeside).map((token) => token.id), [3, 4]);
  assert.deepEqual(round.proposed[0].drafts, ["a", "b"]);
  assert.match(fateOf(round.proposed[1]), /another branch/);
  assert.match(fateOf(round.proposed[3]), /after a rejected token/);
  assert.match(fateOf(round.rejected[1]), /drew “#9” instead/);
});

test("a tree counts by the depth of its paths, as the coordinator does", () => {
  const tally = new Tally();
  for (const one of [PREFILL, TREE]) tally.add(roundOf(one));
  assert.deepEqual([tally.drafted, tally.accepted], [[1, 1, 1], [1, 1, 0]]);
  assert.deepEqual([tally.draftCount, tally.acceptedCount, tally.tokensPerRound], [7, 2, 3]);
});

test("a chunk without tokens or round is none", () => {
  assert.equal(roundOf({ choices: [], usage: { completion_tokens: 3 } }), null);
});

test("numbers are counted as the coordinator counts them", () => {
  const tally = new Tally();
  for (const one of [PREFILL, SPECULATED, PLAIN]) tally.add(roundOf(one));
  assert.equal(tally.tokenCount, 4);
  assert.equal(tally.acceptanceRate, 1 / 3);
  assert.equal(tally.tokensPerRound, 1.5);
  assert.deepEqual(tally.acceptanceByPosition, [1, 0, 0]);
  assert.equal(tally.timeToFirstToken, 4);
  assert.equal(tally.roundTime, 5);
  assert.equal(tally.plainRoundTime, 4);
  assert.deepEqual(speedupOf(tally, null), { ratio: 1.2, plainTime: 4, source: "own" });
});

test("before there is anything there is no speedup", () => {
  const tally = new Tally();
  assert.equal(speedupOf(tally, 3), null);
  tally.add(roundOf(PREFILL));
  assert.equal(speedupOf(tally, 3), null);
  assert.equal(tally.acceptanceRate, null);
});

test("the form becomes the body of a request", () => {
  const fields = new Map(
    Object.entries({ prompt: "a\r\nb", max_tokens: "5", temperature: "0", rule: "token", seed: "7", drafter: "" }),
  );
  fields.set("num_speculative_tokens", "0");
  const body = bodyOf(fields);
  assert.deepEqual(
    [body.prompt, body.max_tokens, body.temperature, body.seed, body.num_speculative_tokens, "drafter" in body],
    ["a\nb", 5, 0, 7, 0, false],
  );
  assert.equal(body.rule, "token");
  fields.set("rule", "");
  assert.ok(!("rule" in bodyOf(fields)), "the server's own");
  fields.set("num_tree_tokens", "8");
  assert.equal(bodyOf(fields).num_tree_tokens, 8);
  fields.set("num_tree_tokens", "");
  assert.ok(!("num_tree_tokens" in bodyOf(fields)), "the server's own");
  fields.set("num_speculative_tokens", "");
  assert.ok(!("num_speculative_tokens" in bodyOf(fields)), "auto leaves it to the server");
});

test("failures are said in words", () => {
  const body = { error: { message: "the request needs 4 of 2 places" } };
  assert.match(failureOf(429, body, "3").message, /All places are taken\. .*4 of 2 places\. .*in 3 seconds/);
  assert.match(failureOf(503, null, null).message, /cannot be reached/);
  assert.match(failureOf(401, null, null).message, /requires a token/);
  assert.deepEqual([401, 429, 400].map((status) => failureOf(status, null, null).wantsToken), [true, false, false]);
  assert.match(failureOf(400, { error: { message: "temperature is -1" } }, null).message, /temperature is -1\./);
  assert.match(failureOfChunk({ error: "gone" }).message, /failed before its end\. gone\./);
  assert.match(connectionLost(1).message, /after 1 token\./);
});

test("K is offered up to what the server takes", () => {
  assert.deepEqual(choicesOfK(2), [["", "auto"], ["0", "0, target alone"], ["1", "1"], ["2", "2"]]);
  assert.deepEqual(choicesOfK(0), [["", "auto"], ["0", "0, target alone"]]);
});

/** A round as Alignment needs it. */
function aligned(text, tokens, rejected = []) {
  const made = (part, origin) => ({ text: part, origin, id: 1 });
  return {
    text,
    tokens: tokens.map(([part, origin]) => made(part, origin ?? "accepted")),
    rejected: rejected.map((part) => made(part, "rejected")),
  };
}

const shown = (pieces) => pieces.map(({ text, token }) => [text, token?.origin ?? null]);

test("each token has its own text, and what was rejected stands before what replaced it", () => {
  const alignment = new Alignment();
  const round = aligned("one two", [["one"], [" two", "correction"]], [" 2", " 3"]);
  assert.deepEqual(shown(alignment.add(round)), [
    ["one", "accepted"],
    [" 2", "rejected"],
    [" 3", "rejected"],
    [" two", "correction"],
  ]);
  assert.deepEqual(alignment.finish(), []);
});

test("text that lags behind its tokens is waited for, and lost by none", () => {
  const alignment = new Alignment();
  assert.deepEqual(shown(alignment.add(aligned("", [["é"], ["!"]]))), []);
  assert.deepEqual(shown(alignment.add(aligned("é", []))), [["é", "accepted"]]);
  assert.deepEqual(shown(alignment.add(aligned("!?", []))), [["!", "accepted"]]);
  assert.deepEqual(alignment.finish().map((piece) => piece.text), ["?"]);
});

test("a character of several tokens belongs to one of them, and the text stays whole", () => {
  const alignment = new Alignment();
  const pieces = alignment.add(aligned("a☃b", [["a"], ["", "bonus"], ["", "bonus"], ["b"]]));
  pieces.push(...alignment.finish());
  assert.deepEqual(shown(pieces), [["a", "accepted"], ["☃", "bonus"], ["b", "accepted"]]);
});

test("a token whose text never comes holds nothing up for ever", () => {
  const alignment = new Alignment();
  const text = "y".repeat(80);
  assert.deepEqual(shown(alignment.add(aligned(text, [["zz"], [text, "bonus"]]))), [[text, "bonus"]]);
  assert.deepEqual(alignment.finish(), []);
});

test("axes have round numbers", () => {
  assert.deepEqual([0.2, 1, 1.2, 7, 99, 101, 4100].map(roundUp), [1, 1, 1.5, 8, 100, 150, 5000]);
  assert.deepEqual(ticksOf(0, 10, 5), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(ticksOf(13, 30, 2), [20, 30]);
  assert.deepEqual([tickLabel(20, 500), tickLabel(1500, 3000)], ["20 ms", "1.5 s"]);
});

test("tokens and numbers are said in words", () => {
  assert.deepEqual([visible({ text: " \n" }), visible({ text: "  " }), visible({ text: "", id: 7 })], [" ↵", "··", "#7"]);
  assert.deepEqual([0.99999, 0.5, 0.004, 0.00001, null].map(probability), ["1.00", "0.50", "0.004", "< 0.001", "–"]);
  assert.deepEqual([12.34, 123.4, 2345, null].map(duration), ["12.3 ms", "123 ms", "2.35 s", "–"]);
  const round = roundOf(SPECULATED);
  assert.match(fateOf(round.rejected[0]), /rejected; the target drew “#9” instead/);
  assert.match(fateOf(round.rejected[1]), /Proposed after a rejected token/);
  assert.match(fateOf(round.tokens.at(-1)), /in place of “#3”/);
  assert.match(spoken(round.tokens[0]), /^“#2”, accepted, round 1, draft 0\.25, target 0\.50\. Proposed by the draft, accepted/);
  assert.equal(quoted({ text: "a" }), "“a”");
});

test("the end is said in one sentence", () => {
  const tally = new Tally();
  for (const one of [PREFILL, SPECULATED, PLAIN]) tally.add(roundOf(one));
  assert.equal(
    resultOf(tally, "Finished", 7),
    "Finished: 4 tokens in 14.0 ms, 33 % of the proposed tokens accepted, 1.50 tokens per round, seed 7.",
  );
});
