// Polls, shows, and says when something is wrong.
import { Problem, get, session } from "./api.js";
import { charts } from "./charts.js";
import { login } from "./dialog.js";
import { $, count, el, millis, rate, say, span } from "./dom.js";
import { events, follow, forgetEvents } from "./events.js";
import { lookup } from "./lookup.js";
import { Series, figures } from "./stats.js";
import { forgetWorkers, showWorkers } from "./workers.js";

const EVERY_MS = 2000;
const CARDS = [
  ["resolves", "Resolves", (f) => `${rate(f.resolves)}/s`, (now) => `${count(now.resolves)} in all`],
  ["binds", "Binds", (f) => `${rate(f.binds)}/s`, (now) => `${count(now.binds)} in all`],
  ["resets", "Resets", (f) => `${rate(f.resets)}/s`, (now) => `${count(now.resets)} in all`],
  ["degraded", "Degraded", (f) => `${rate(f.degraded)}/s`, (now) => `${count(now.degraded)} in all`, (now, f) => f.degraded > 0],
  ["p50", "Store p50", (f) => millis(f.p50), () => "of store calls"],
  ["p99", "Store p99", (f) => millis(f.p99), (now) => `${count(now.errors)} errors`],
  ["rollbacks", "Rollbacks", null, () => "lost advances", (now) => now.rollbacks > 0],
  ["fences", "Stale fences", null, (now) => `${count(now.undurable)} undurable`],
];
const series = new Series(151);
const plots = charts();
const cards = {};
let timer = 0, generation = 0, started = false;

function makeCards() {
  $("cards").replaceChildren(...CARDS.map(([id, title]) => {
    cards[id] = { box: null, value: el("b", { text: "–" }), note: el("small", { text: " " }) };
    cards[id].box = el("div", { class: "card", id: `card-${id}` }, el("h3", { text: title }), cards[id].value, cards[id].note);
    return cards[id].box;
  }));
}

function fill(now) {
  const latest = series.latest;
  for (const [id, , live, note, alarm] of CARDS) {
    cards[id].value.textContent = live ? (latest ? live(latest) : "–") : count(now[id]);
    cards[id].note.textContent = note(now);
    cards[id].box.classList.toggle("alarm", Boolean(alarm?.(now, latest ?? { degraded: 0 })));
  }
}

function status(kind, text) {
  if ($("status").textContent === text) return;
  $("status").className = `pill ${kind}`;
  $("status").textContent = text;
}

function banner(text) {
  if ($("banner").textContent === text && !$("banner").hidden) return;
  $("banner").hidden = !text;
  $("banner").textContent = text ?? "";
}

function account() {
  const who = session.token || session.namespace;
  $("account").textContent = who ? "Sign out" : "Sign in";
}

function restart() {
  generation += 1;
  series.clear();
  plots.clear();
  forgetWorkers();
  forgetEvents();
  makeCards();
  account();
  banner(null);
  started = false;
  tick();
}

async function stats() {
  try {
    const snapshot = await get("v1/stats");
    $("namespace").textContent = snapshot.namespace;
    $("replica").textContent = `${snapshot.replica}, up ${span(snapshot.at_ms - snapshot.started_ms)}`;
    $("version").textContent = snapshot.version;
    $("stats-note").hidden = true;
    const now = figures(snapshot);
    series.add(now);
    fill(now);
    plots.draw(series.rows);
  } catch (problem) {
    if (problem.status !== 403) throw problem;
    $("stats-note").hidden = false;
    $("stats-note").textContent = "Figures need a token with the right admin; the rest works with this one.";
  }
}

const refresh = Object.assign(() => showWorkers(refresh).catch(failed), { fail: (problem) => banner(problem.message) });

function failed(problem) {
  if (!(problem instanceof Problem)) throw problem;
  if (problem.status === 401) {
    status("gone", "Signed out");
    login(session.token ? "That token is not known." : null, session, restart);
    return false;
  }
  document.body.classList.add("stale");
  status("gone", problem.status ? "Trouble" : "Unreachable");
  banner(problem.message);
  return true;
}

async function tick() {
  clearTimeout(timer);
  const mine = generation;
  let again = true;
  if (!document.hidden) {
    try {
      await stats();
      await showWorkers(refresh);
      if (mine !== generation) return;
      if (!started) { started = true; follow(); }
      document.body.classList.remove("stale");
      status("live", "Live");
      banner(null);
    } catch (problem) {
      if (mine !== generation) return;
      again = failed(problem);
    }
  }
  if (again && mine === generation) timer = setTimeout(tick, EVERY_MS);
}

function themes() {
  const root = document.documentElement, order = ["system", "light", "dark"], signs = { system: "◐", light: "☀", dark: "☾" };
  const show = () => {
    const now = root.dataset.theme ?? "system";
    $("theme").textContent = signs[now];
    $("theme").setAttribute("aria-label", `Colour theme: ${now}`);
    $("theme").title = `Colour theme: ${now}`;
  };
  $("theme").addEventListener("click", () => {
    const next = order[(order.indexOf(root.dataset.theme ?? "system") + 1) % 3];
    if (next === "system") delete root.dataset.theme; else root.dataset.theme = next;
    try { localStorage.setItem("limpet.theme", next); } catch { /* storage may be denied: it holds for this page */ }
    show();
    plots.recolour();
    say(`Colour theme: ${next}`);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.recolour());
  show();
}

$("account").addEventListener("click", () => {
  if (session.token || session.namespace) { session.set("", ""); restart(); } else login(null, session, restart);
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
makeCards();
themes();
lookup();
events();
account();
tick();
