// Small helpers: text is always set as text, never as markup.
export const $ = (id) => document.getElementById(id);

export function el(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(options)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") node.className = value;
    else if (key === "text") node.textContent = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function say(text) {
  $("said").textContent = "";
  requestAnimationFrame(() => { $("said").textContent = text; });
}

export function count(n) {
  return new Intl.NumberFormat("en", { maximumFractionDigits: 0 }).format(n);
}

export function rate(n) {
  if (n === null || Number.isNaN(n)) return "–";
  return n >= 100 ? count(n) : n >= 10 ? n.toFixed(1) : n.toFixed(n === 0 ? 0 : 2);
}

export function millis(s) {
  if (s === null || Number.isNaN(s)) return "–";
  const ms = s * 1000;
  return ms >= 100 ? `${ms.toFixed(0)} ms` : ms >= 1 ? `${ms.toFixed(1)} ms` : `${ms.toFixed(2)} ms`;
}

export function span(ms) {
  const s = ms / 1000;
  if (s < 90) return `${Math.max(0, Math.round(s))} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 129_600) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86_400)} days`;
}

export const ago = (ms) => (Date.now() - ms < 2000 ? "just now" : `${span(Date.now() - ms)} ago`);
export const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour12: false });
