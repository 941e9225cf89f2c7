// The table of workers, and what may be done with one.
import { get, name, ask, post } from "./api.js";
import { confirm } from "./dialog.js";
import { $, count, el, say, span } from "./dom.js";

const STATES = { live: "Live", draining: "Draining", gone: "Gone", damaged: "Damaged" };
let shown = "";

function drainCell(worker) {
  const drain = worker.drain;
  if (worker.state === "live" || !drain) return null;
  if (drain.may_stop) return el("small", { class: "good", text: `${count(drain.moved)} moved; may stop` });
  const words = drain.running ? `${count(drain.moved)} moved, ${count(drain.left)} in flight` : `paused: ${drain.problem ?? "not running"}`;
  return el("span", { class: "drain-state" },
    el("progress", { max: "1", value: String(drain.done), "aria-label": `Drain of ${worker.worker}` }), el("small", { text: words }));
}

function actions(worker, refresh) {
  const run = async (question, work, done) => {
    if (!(await confirm(question))) return;
    try { await work(); say(done); } catch (problem) { say(problem.message); refresh.fail(problem); }
    refresh();
  };
  const path = `v1/workers/${name(worker.worker)}`;
  const label = worker.worker;
  const drain = () => run(
    { title: `Drain ${label}?`, text: `${count(worker.bindings)} live bindings move to other workers in their next turns, each once. It gets no new ones.`, yes: "Drain", danger: true },
    () => post(`${path}/drain`), `${label} is draining.`);
  const undrain = () => run(
    { title: `Undrain ${label}?`, text: "It may be proposed for new conversations again. What has moved does not come back.", yes: "Undrain" },
    () => post(`${path}/undrain`), `${label} takes conversations again.`);
  const remove = () => run(
    { title: `Remove ${label}?`, text: "It is taken out of the registry. Its conversations are bound elsewhere in their next turns.", yes: "Remove", danger: true },
    () => ask("DELETE", path), `${label} is removed.`);
  const button = (text, onclick, id) => el("button", { type: "button", class: "small", onclick, "data-id": `${id}:${label}`, "aria-label": `${text} ${label}`, text });
  const buttons = [];
  if (worker.state === "draining" || worker.drain) {
    if (worker.drain && !worker.drain.running && !worker.drain.may_stop) buttons.push(button("Continue", drain, "drain"));
    buttons.push(button("Undrain", undrain, "undrain"));
  } else if (worker.state !== "damaged") buttons.push(button("Drain", drain, "drain"));
  if (worker.state === "gone" || worker.state === "damaged") buttons.push(button("Remove", remove, "remove"));
  return el("div", { class: "row tight end" }, ...buttons);
}

export async function showWorkers(refresh) {
  const list = await get("v1/workers");
  const text = JSON.stringify(list);
  if (text === shown) return;
  shown = text;
  const all = list.workers, most = Math.max(1, ...all.map((worker) => worker.bindings));
  const live = all.filter((worker) => worker.state === "live").length;
  const bound = all.reduce((sum, worker) => sum + worker.bindings, list.unregistered + list.unnamed);
  $("workers-sum").textContent = all.length || bound
    ? `${live} of ${all.length} live · ${count(bound)} bindings${list.unregistered ? ` · ${count(list.unregistered)} to unregistered workers` : ""}` : "";
  if (!all.length) {
    $("workers").replaceChildren(el("p", { class: "empty" }, "No workers are registered. Register one with ",
      el("code", { text: "PUT /v1/workers/{id}" }), ", or name your own candidate in each resolve."));
    return;
  }
  const focused = document.activeElement?.dataset?.id;
  const cell = (label, ...content) => el("td", { "data-label": label }, ...content);
  const rows = all.map((worker) => el("tr", {},
    el("th", { scope: "row" }, el("span", { class: "name", text: worker.worker }), worker.address ? el("small", { text: worker.address }) : null),
    cell("Pool", worker.pool),
    cell("State", el("span", { class: `pill ${worker.state}`, text: STATES[worker.state] ?? worker.state }), drainCell(worker)),
    cell("Bindings", el("span", { class: "bar" }, el("meter", { min: "0", max: String(most), value: String(worker.bindings), "aria-hidden": "true" }), el("b", { text: count(worker.bindings) }))),
    cell("Capacity", String(worker.capacity)),
    cell("Heartbeat", worker.ttl_ms ? `${span(worker.heartbeat_age_ms)} ago` : "static"),
    el("td", { class: "actions" }, actions(worker, refresh))));
  $("workers").replaceChildren(el("table", {}, el("caption", { class: "sr", text: "Registered workers" }),
    el("thead", {}, el("tr", {}, ...["Worker", "Pool", "State", "Bindings", "Capacity", "Heartbeat"].map((head) => el("th", { scope: "col", text: head })),
      el("th", { scope: "col" }, el("span", { class: "sr", text: "Actions" })))), el("tbody", {}, ...rows)));
  if (focused) [...document.querySelectorAll("[data-id]")].find((node) => node.dataset.id === focused)?.focus();
}

export function forgetWorkers() {
  shown = "";
  $("workers").replaceChildren();
  $("workers-sum").textContent = "";
}
