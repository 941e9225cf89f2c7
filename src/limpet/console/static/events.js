// Server-Sent Events by fetch, since EventSource cannot send the token. Resumes where it was cut off.
import { headers, refusal } from "./api.js";
import { $, clock, el } from "./dom.js";

const KINDS = ["advance", "bind", "rebind", "release", "suspend", "forget", "worker", "drain"];
const SHOWN = 60;
let stop = null, lastId = "", paused = false, waiting = [], frame = 0;

function words(event) {
  const parts = [event.worker, event.reason];
  if (event.kind === "drain") parts.push(`${event.moved} moved`, event.may_stop ? "may stop" : `${Math.round((event.done ?? 0) * 100)} %`);
  return parts.filter(Boolean).join(" · ");
}

function render() {
  frame = 0;
  const chosen = $("kind").value;
  const items = waiting.filter((event) => !chosen || event.kind === chosen || event.kind === "reset").slice(-SHOWN).reverse().map((event) => el("li", {},
    el("time", { text: clock(event.at_ms ?? Date.now()) }), el("span", { class: `tag ${event.kind}`, text: event.kind }),
    el("span", { class: "what", text: words(event) }), event.digest ? el("code", { title: "digest of the key", text: event.digest.slice(0, 8) }) : null));
  waiting = [];
  if (!items.length) return;
  $("events").querySelector(".empty")?.remove();
  $("events").prepend(...items);
  while ($("events").children.length > SHOWN) $("events").lastElementChild.remove();
}

function heard(event) {
  waiting.push(event);
  if (waiting.length > 500) waiting.shift();
  if (!paused && !frame) frame = setTimeout(render, 250);
}

async function read(signal) {
  const more = { Accept: "text/event-stream" };
  if (lastId) more["Last-Event-ID"] = lastId;
  const answer = await fetch("v1/events", { headers: headers(more), cache: "no-store", credentials: "omit", signal });
  if (!answer.ok) throw await refusal(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const fields = {};
      for (const line of part.split("\n")) {
        const at = line.indexOf(":");
        if (at > 0) fields[line.slice(0, at)] = line.slice(at + 1).trimStart();
      }
      if (fields.id) lastId = fields.id;
      if (fields.data) heard({ ...JSON.parse(fields.data) });
    }
  }
}

export function follow() {
  stop?.abort();
  const mine = stop = new AbortController();
  (async () => {
    for (let pause = 1000; !mine.signal.aborted; pause = Math.min(pause * 2, 15_000)) {
      try { await read(mine.signal); pause = 1000; } catch (problem) {
        if (problem.status === 401 || problem.status === 403) return;
      }
      await new Promise((resolve) => { setTimeout(resolve, pause); });
    }
  })();
}

export function events() {
  $("kind").replaceChildren(el("option", { value: "", text: "All kinds" }), ...KINDS.map((kind) => el("option", { value: kind, text: kind })));
  $("kind").addEventListener("change", () => { $("events").replaceChildren(); });
  $("events").replaceChildren(el("li", { class: "empty", text: "Nothing has happened since you opened this page." }));
  $("pause").addEventListener("click", () => {
    paused = !paused;
    $("pause").setAttribute("aria-pressed", String(paused));
    $("pause").textContent = paused ? "Resume" : "Pause";
    if (!paused) render();
  });
}

export function forgetEvents() {
  stop?.abort();
  lastId = "";
  waiting = [];
  $("events").replaceChildren(el("li", { class: "empty", text: "Nothing has happened since you opened this page." }));
}
