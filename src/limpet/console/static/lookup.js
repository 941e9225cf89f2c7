// One conversation: where it is, what it is bound to, what became of it, and what may be done about it.
import { get, name, post } from "./api.js";
import { confirm } from "./dialog.js";
import { $, ago, clock, el, say, span } from "./dom.js";

let current = null;

const row = (term, ...content) => el("div", {}, el("dt", { text: term }), el("dd", {}, ...content));
const code = (text) => el("code", { text: String(text) });

function bindingRows(binding) {
  if (!binding || binding.state === "unbound") return [row("Binding", "none; the next turn that asks is told to bind")];
  const left = binding.expires_in_ms === null ? "" : `, ${span(binding.expires_in_ms)} left`;
  return [
    row("Binding", el("span", { class: `pill ${binding.state === "bound" ? "live" : "draining"}`, text: binding.state }), ` ${binding.worker ?? "no worker named yet"}${left}`),
    row("Fence", code(binding.fence ?? "–"), binding.holder ? ` · held by ${binding.holder}` : ""),
  ];
}

function show(key, found, past) {
  const binding = found.binding, bound = binding && binding.state !== "unbound";
  const act = async (question, work, done) => {
    const answer = await confirm(question);
    if (!answer) return;
    try { await work(answer); say(done); } catch (problem) { fail(problem); return; }
    await look(key);
  };
  const release = () => act(
    { title: "Release the binding?", text: `The conversation stays; its next turn is bound anew, perhaps to another worker than ${binding.worker ?? "now"}.`, yes: "Release", danger: true },
    () => post("v1/bindings/release", { key, fence: binding.fence, reason: "operator" }), "Released.");
  const advance = () => act(
    { title: "Begin a new conversation?", text: "The key gets a new epoch and a new scope, and its binding ends. The old bucket is never used again.", yes: "Advance", danger: true, label: "Reason", value: "new" },
    (reason) => post("v1/advance", { key, reason, expected_epoch: found.epoch }), "A new conversation has begun.");
  const events = past.events.map((event) => el("tr", {}, el("td", { text: clock(event.at_ms) }), el("td", {}, el("span", { class: `tag ${event.kind}`, text: event.kind })),
    el("td", { text: [event.worker, event.reason].filter(Boolean).join(" · ") })));
  $("found").replaceChildren(
    el("dl", { class: "facts" },
      row("Scope", code(found.scope)),
      row("Epoch", code(found.epoch), ` · conversation ${found.ordinal} of this key`),
      row("Began", `${ago(found.epoch_started_ms)}, ${new Date(found.epoch_started_ms).toLocaleString([], { hour12: false })} (${found.epoch_reason})`),
      ...bindingRows(binding)),
    el("div", { class: "row" }, bound ? el("button", { type: "button", id: "release", onclick: release, text: "Release binding" }) : null,
      el("button", { type: "button", id: "advance", onclick: advance, text: "New conversation" })),
    el("h3", { text: "Conversations under this key" }),
    el("ol", { class: "past" }, ...past.epochs.map((epoch) => el("li", {}, code(epoch.epoch),
      el("span", { text: `${epoch.reason ?? "reason no longer known"} · ${new Date(epoch.began_ms).toLocaleString([], { hour12: false })}` })))),
    el("p", { class: "note", text: "As far as the record remembers: its last eight decisions." }),
    el("h3", { text: "Events" }),
    events.length ? el("table", { class: "plain" }, el("tbody", {}, ...events)) : "",
    el("p", { class: "note", text: `${events.length ? "Heard" : "None heard"} by this process since ${clock(past.listening_since_ms)}; it listens only while somebody looks.` }));
}

function fail(problem) {
  const nothing = problem.code === "unknown_conversation";
  $("found").replaceChildren(el("p", { class: nothing ? "empty" : "problem", text: nothing ? "No record of that key: never seen, forgotten, or past its retention." : problem.message }));
}

async function look(key) {
  current = key;
  try {
    const [found, past] = await Promise.all([get(`v1/conversations/${name(key)}`), get(`v1/history/${name(key)}`)]);
    if (current === key) show(key, found, past);
  } catch (problem) {
    if (current === key) fail(problem);
  }
}

export function lookup() {
  $("found").replaceChildren(el("p", { class: "empty", text: "Looking touches nothing: no activity, no reset, no claim." }));
  $("lookup").addEventListener("submit", (event) => {
    event.preventDefault();
    const key = $("key").value;
    if (key) look(key);
  });
}
