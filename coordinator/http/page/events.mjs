// Server-sent events: bytes in, the data of each event out.

/** Splits text, whatever its pieces, into the data of its events. */
export class EventParser {
  #rest = "";

  /** Adds text and returns the data of the events that are now complete, in order. */
  push(text) {
    this.#rest += text;
    // A carriage return at the very end may be the first half of a line end.
    const held = this.#rest.endsWith("\r") ? "\r" : "";
    const blocks = (held ? this.#rest.slice(0, -1) : this.#rest).replace(/\r\n?/g, "\n").split("\n\n");
    this.#rest = blocks.pop() + held;
    return blocks.map(dataOf).filter((data) => data !== null);
  }
}

/** The data of each event of a stream of bytes. */
export async function* eventsOf(stream) {
  const parser = new EventParser();
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) yield* parser.push(part.value);
  } finally {
    await reader.cancel().catch(() => {});
  }
}

function dataOf(block) {
  const lines = block.split("\n").filter((line) => line.startsWith("data:"));
  return lines.length ? lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n") : null;
}
