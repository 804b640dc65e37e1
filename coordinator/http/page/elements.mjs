// Creates elements in one expression. Text from models is inserted as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element with properties (`aria…`, `role` and `for` as attributes) and children. */
export function html(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made && !key.startsWith("aria")) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** An SVG element with attributes and children. */
export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
