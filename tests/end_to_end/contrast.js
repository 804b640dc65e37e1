// The contrast of each text with what is behind it, as WCAG 2.2 defines it: [[name, ratio], ...].
const rgb = (color) => color.match(/[\d.]+/g).map(Number);
const background = (element) => {
  for (let one = element; one; one = one.parentElement) {
    const color = rgb(getComputedStyle(one).backgroundColor);
    if (color.length < 4 || color[3] === 1) return color;
  }
  return [255, 255, 255];
};
const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
const light = (color) => {
  const [r, g, b] = color.map((part) => linear(part / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const shown = [...document.querySelectorAll(arguments[0])].filter((one) => one.offsetParent && one.textContent.trim());
return shown.map((one) => {
  const [a, b] = [light(rgb(getComputedStyle(one).color)), light(background(one))];
  return [one.className || one.tagName, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
});
