// The two charts, drawn by uPlot with colours from the style sheet; a summary in words stands beside each for those who do not see it.
import { $, el, millis, rate } from "./dom.js";

const RATES = [["resolves", "Resolves", "--c1"], ["binds", "Binds", "--c2"], ["resets", "Resets", "--c3"], ["degraded", "Degraded", "--c4"]];
const TIMES = [["p50", "p50", "--c1"], ["p99", "p99", "--c5"]];
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

class Chart {
  constructor(id, lines, format) {
    this.id = id;
    this.lines = lines;
    this.format = format;
    this.plot = null;
    this.data = null;
    this.words = {};
    $(`${id}-legend`).replaceChildren(...lines.map(([name, label], i) => {
      this.words[name] = el("b", { text: "–" });
      return el("li", { class: `k${lines[i][2].slice(3)}` }, el("span", { text: label }), this.words[name]);
    }));
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe($(id));
  }

  size() {
    return { width: Math.max(200, $(this.id).clientWidth), height: 200 };
  }

  redraw() {
    this.plot?.destroy();
    this.plot = null;
    if (this.data) this.draw(this.data);
  }

  draw(rows) {
    this.data = rows;
    const data = [rows.at, ...this.lines.map(([name]) => rows[name])];
    for (const [name] of this.lines) this.words[name].textContent = this.format(rows[name].at(-1) ?? null);
    $(this.id).setAttribute("aria-label", this.lines.map(([name, label]) => `${label} ${this.words[name].textContent}`).join(", "));
    if (this.plot) { this.plot.setData(data); return; }
    if (rows.at.length < 2) return;
    const axis = { stroke: css("--soft-ink"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    $(this.id).replaceChildren();
    this.plot = new window.uPlot({
      ...this.size(), padding: [10, 12, 0, 0], cursor: { y: false, points: { size: 6 } }, legend: { show: false },
      scales: { y: { range: (_, low, high) => [0, Math.max(high ?? 0, 1e-9) * 1.15 || 1] } },
      axes: [
        { ...axis, size: 28, space: 90, values: (_, ticks) => ticks.map((at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false })) },
        { ...axis, size: 66, values: (_, ticks) => ticks.map((value) => this.format(value)) },
      ],
      series: [{}, ...this.lines.map(([, label, colour], i) => ({
        label, stroke: css(colour), width: 2, points: { show: false }, fill: i === 0 ? `${css(colour)}1c` : undefined, spanGaps: false,
      }))],
    }, data, $(this.id));
  }
}

export function charts() {
  const all = [new Chart("rates", RATES, (n) => (n === null ? "–" : `${rate(n)}/s`)), new Chart("times", TIMES, millis)];
  const empty = () => all.forEach((chart) => $(chart.id).replaceChildren(el("p", { class: "empty", text: "Collecting the first figures…" })));
  empty();
  return {
    draw: (rows) => all.forEach((chart) => chart.draw(rows)),
    recolour: () => all.forEach((chart) => chart.redraw()),
    clear: () => { all.forEach((chart) => { chart.plot?.destroy(); chart.plot = null; chart.data = null; }); empty(); },
  };
}
