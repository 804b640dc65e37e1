// Passes one output from the stream to the views.

import { Alignment } from "./alignment.mjs";
import { NumbersView } from "./numbers.mjs";
import { PositionsView } from "./positions.mjs";
import { roundOf } from "./round.mjs";
import { RoundsView } from "./rounds.mjs";
import { speedupOf, Tally } from "./tally.mjs";
import { TextView } from "./text.mjs";
import { TimelineView } from "./timeline.mjs";

// Views are drawn at most this often: more is not visible and would slow down a fast stream.
const DRAW_INTERVAL_MS = 80;

/** Takes chunks as they come and draws them at intervals. */
export class Run {
  tally = new Tally();
  #rounds = [];
  #alignment = new Alignment();
  #undrawnPieces = [];
  #undrawnRounds = [];
  #measuredPlainTime;
  #views;
  #timer = null;

  constructor(page, details, measuredPlainTime) {
    const element = (id) => page.getElementById(id);
    this.#measuredPlainTime = measuredPlainTime;
    this.#views = {
      text: new TextView(element("tokens"), details, { showRejected: element("show-rejected"), copy: element("copy") }),
      rounds: new RoundsView(element("rounds"), element("rounds-scroll")),
      positions: new PositionsView(element("positions"), element("positions-note")),
      timeline: new TimelineView(element("timeline"), element("timeline-note"), element("zoom")),
      numbers: new NumbersView(element),
    };
  }

  add(chunk) {
    const round = roundOf(chunk);
    if (round === null) return;
    this.tally.add(round);
    this.#rounds.push(round);
    this.#undrawnRounds.push(round);
    this.#undrawnPieces.push(...this.#alignment.add(round));
    this.#timer ??= setTimeout(() => this.#draw(), DRAW_INTERVAL_MS);
  }

  finish() {
    this.#undrawnPieces.push(...this.#alignment.finish());
    clearTimeout(this.#timer);
    this.#draw();
  }

  #draw() {
    this.#timer = null;
    const speedup = speedupOf(this.tally, this.#measuredPlainTime);
    this.#views.text.add(this.#undrawnPieces);
    this.#views.rounds.add(this.#undrawnRounds);
    this.#undrawnPieces = [];
    this.#undrawnRounds = [];
    this.#views.positions.draw(this.tally);
    this.#views.timeline.draw(this.#rounds, this.tally, speedup);
    this.#views.numbers.draw(this.tally, speedup);
  }
}
