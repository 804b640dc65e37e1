// Scales for a time axis.

/** A round number of milliseconds that is at least `value`, so that an axis grows in steps. */
export function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((factor) => factor * power).find((candidate) => candidate >= value) ?? value;
}

/** Round times from `start` to `end`, about as many as asked for. */
export function ticksOf(start, end, count) {
  const rough = (end - start) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-3)));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
  const ticks = [];
  for (let tick = Math.ceil(start / step) * step; tick <= end * (1 + 1e-9); tick += step) ticks.push(tick);
  return ticks;
}

/** The label of a tick, in milliseconds or, on axes of seconds, in seconds. */
export function tickLabel(tick, end) {
  if (end < 1000) return `${Number(tick.toFixed(2))} ms`;
  return `${Number((tick / 1000).toFixed(3))} s`;
}
