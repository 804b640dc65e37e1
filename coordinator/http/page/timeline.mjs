// The times at which draft and target worked, after Figure 5 of Leviathan et al. 2023.

import { svg } from "./elements.mjs";
import { roundUp, tickLabel, ticksOf } from "./scale.mjs";
import { counted, duration } from "./words.mjs";

const LABELS = 92;
const LANE = 26;
const LANES = { draft: 4, target: 36, alone: 80 };
const HEIGHT = 136;
const AXIS = 114;
const LAST_ROUNDS = 12;
const GAP = 0.6;
const NARROW = 560;

/** Three lanes: the draft, the target, and for comparison the estimated target alone. */
export class TimelineView {
  #chart;
  #note;
  #zoom;
  #data = null;
  #isDone = false;

  constructor(chart, note, zoom) {
    this.#chart = chart;
    this.#note = note;
    this.#zoom = zoom;
    zoom.onclick = () => {
      zoom.setAttribute("aria-pressed", String(zoom.getAttribute("aria-pressed") !== "true"));
      this.#redraw();
    };
    chart.resizes?.disconnect();
    chart.resizes = new ResizeObserver(() => this.#redraw());
    chart.resizes.observe(chart);
    chart.onpointermove = (event) => this.#onHover(event);
    chart.onpointerleave = () => this.#describe(null);
    chart.replaceChildren();
  }

  draw(rounds, tally, speedup) {
    this.#data = { rounds, tally, speedup };
    this.#redraw();
  }

  #redraw() {
    if (!this.#data?.rounds.length) return;
    const picture = pictureOf(this.#data, this.#chart.clientWidth, this.#zoom.getAttribute("aria-pressed") === "true");
    this.#chart.replaceChildren(picture.root);
    this.#data.picture = picture;
    this.#describe(null);
  }

  #onHover(event) {
    if (!this.#data?.picture) return;
    const { timeAt, root } = this.#data.picture;
    const time = timeAt(event.clientX - root.getBoundingClientRect().left);
    this.#describe(time === null ? null : (this.#data.rounds.find((round) => endOf(round) >= time) ?? null));
  }

  #describe(round) {
    const { picture, tally } = this.#data ?? {};
    if (!picture) return;
    picture.mark(round);
    this.#note.textContent = round ? inWords(round) : meansOf(tally, this.#data.rounds);
  }
}

function pictureOf({ rounds, tally, speedup }, width, isZoomed) {
  const shown = isZoomed ? rounds.slice(-LAST_ROUNDS) : rounds;
  const labels = width < NARROW ? 58 : LABELS;
  const start = isZoomed ? startOf(shown[0]) : 0;
  const end = isZoomed ? tally.endTime : roundUp(tally.endTime);
  const x = (time) => labels + ((time - start) / (end - start)) * (width - labels - 1);
  const marker = svg("rect", { class: "marker", y: 0, height: AXIS, rx: 3, width: 0 });
  const alone = aloneTimes(tally, speedup);
  const root = svg(
    "svg",
    { width, height: HEIGHT, role: "img", "aria-label": meansOf(tally, rounds) },
    ...axis(x, start, end, width),
    marker,
    ...laneNames(width < NARROW),
    ...lanes(shown, x),
    ...aloneLane(alone.filter(([from, to]) => to > start && from < end), x, start, end),
  );
  const mark = (round) => {
    const [left, right] = round && shown.includes(round) ? [x(startOf(round)), x(endOf(round))] : [0, 0];
    marker.setAttribute("x", left);
    marker.setAttribute("width", Math.max(right - left, 0));
  };
  const timeAt = (place) => (place < labels ? null : start + ((place - labels) / (width - labels)) * (end - start));
  return { root, mark, timeAt };
}

function lanes(rounds, x) {
  const drafts = rounds.filter((round) => round.draft);
  const [ahead, asked] = [drafts.filter(isAhead), drafts.filter((round) => !isAhead(round))];
  const [first, rest] = [rounds.filter((round) => round.step === 0), rounds.filter((round) => round.step > 0)];
  return [
    path("span draft wait", drafts.map((round) => bar(LANES.draft, x(round.draft.start), x(round.draft.end)))),
    path("span draft", asked.map((round) => computeBar(LANES.draft, round.draft, x))),
    path("span draft ahead", ahead.map((round) => computeBar(LANES.draft, round.draft, x))),
    path("cuts", drafts.flatMap((round) => cutsOf(round, x))),
    path("span verify wait", rest.map((round) => bar(LANES.target, x(round.verify.start), x(round.verify.end)))),
    path("span verify", rest.map((round) => computeBar(LANES.target, round.verify, x))),
    path("span prompt", first.map((round) => bar(LANES.target, x(round.verify.start), x(round.verify.end)))),
  ];
}

/** The target alone: the same prompt, then a plain round for each token. */
function aloneTimes(tally, speedup) {
  if (speedup === null || tally.timeToFirstToken === null) return [];
  return Array.from({ length: tally.tokenCount - 1 }, (_, index) => {
    const from = tally.timeToFirstToken + index * speedup.plainTime;
    return [from, from + speedup.plainTime];
  });
}

function aloneLane(times, x, start, end) {
  const bars = times.map(([from, to]) => bar(LANES.alone, x(Math.max(from, start)), x(Math.min(to, end))));
  return [path("span alone", bars)];
}

function axis(x, start, end, width) {
  return ticksOf(start, end, width / 130).flatMap((tick) => {
    const place = x(tick);
    const anchor = place > width - 40 ? "end" : tick === 0 ? "start" : "middle";
    return [
      svg("line", { class: "grid", x1: place, x2: place, y1: 0, y2: AXIS }),
      svg("text", { class: "tick", x: place, y: HEIGHT - 6, "text-anchor": anchor }, tickLabel(tick, end)),
    ];
  });
}

function laneNames(isNarrow) {
  const names = { draft: ["draft"], target: ["target"], alone: isNarrow ? ["alone"] : ["target alone", "(estimated)"] };
  return Object.entries(names).map(([lane, lines]) => {
    const middle = LANES[lane] + LANE / 2 + 4 - (lines.length - 1) * 7;
    const parts = lines.map((line, index) => svg("tspan", { x: 0, y: middle + index * 14 }, line));
    return svg("text", { class: "lane" }, ...parts);
  });
}

/** Marks between the draft's steps, if they are far enough apart to be visible. */
function cutsOf(round, x) {
  const count = round.proposed.length;
  const step = round.draft.compute / count;
  if (x(step) - x(0) < 4) return [];
  return Array.from({ length: count - 1 }, (_, index) => {
    const place = x(round.draft.computeStart + step * (index + 1));
    return `M${place.toFixed(1)} ${LANES.draft}v${LANE}`;
  });
}

function computeBar(y, call, x) {
  return bar(y, x(call.computeStart), x(call.computeStart + call.compute));
}

function bar(y, left, right) {
  const width = Math.max(right - left - GAP, 0.5);
  return `M${left.toFixed(1)} ${y}h${width.toFixed(1)}v${LANE}h-${width.toFixed(1)}z`;
}

function path(name, parts) {
  return svg("path", { class: name, d: parts.join("") });
}

/** Whether the draft prepared the proposal while the target verified the round before. */
function isAhead(round) {
  return round.ahead === "hit" || round.ahead === "late";
}

function startOf(round) {
  return Math.min(round.draft?.start ?? Infinity, round.verify?.start ?? Infinity);
}

function endOf(round) {
  return round.verify?.end ?? 0;
}

function inWords(round) {
  if (round.step === 0) return `Prompt: the target read ${counted(round.rowCount, "token")} in ${duration(round.verify?.elapsed)}`;
  const accepted = round.proposed.length - round.rejected.length;
  const proposed = round.proposed.length ? `${accepted} of ${round.proposed.length} accepted` : "nothing proposed";
  const when = isAhead(round) ? " during the verification before" : "";
  const draft = round.draft ? `, draft ${duration(round.draft.elapsed)}${when}` : "";
  return `Round ${round.step}: ${proposed}${draft}, verify ${duration(round.verify?.elapsed)}`;
}

function meansOf(tally, rounds) {
  if (!tally.roundCount) return "The target reads the prompt.";
  const rest = Math.max(tally.roundTime - tally.draftTime - tally.verifyTime, 0);
  const parts = rounds.some((round) => round.draft) ? [`draft ${duration(tally.draftTime)}`] : [];
  parts.push(`verify ${duration(tally.verifyTime)}`, `other ${duration(rest)}`);
  const ahead = tally.aheadCount ? ` The draft worked ahead for ${counted(tally.aheadCount, "round")}.` : "";
  return `A round took ${duration(tally.roundTime)} on average: ${parts.join(", ")}.${ahead}`;
}
