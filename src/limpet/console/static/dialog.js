// The two dialogs. The browser keeps the focus inside and gives it back; Escape cancels.
import { $ } from "./dom.js";

export function confirm({ title, text, yes, danger = false, label = null, value = "" }) {
  const dialog = $("confirm"), input = $("confirm-input"), before = document.activeElement;
  $("h-confirm").textContent = title;
  $("confirm-text").textContent = text;
  $("confirm-yes").textContent = yes;
  $("confirm-yes").className = danger ? "danger" : "primary";
  $("confirm-ask").hidden = label === null;
  $("confirm-label").textContent = label ?? "";
  input.value = value;
  input.required = label !== null;
  return new Promise((resolve) => {
    const done = (answer) => {
      $("confirm-form").onsubmit = $("confirm-no").onclick = dialog.oncancel = null;
      dialog.close();
      before?.focus?.();
      resolve(answer);
    };
    $("confirm-form").onsubmit = (event) => { event.preventDefault(); done(label === null ? true : input.value.trim()); };
    $("confirm-no").onclick = () => done(null);
    dialog.oncancel = (event) => { event.preventDefault(); done(null); };
    dialog.showModal();
    (label === null ? $("confirm-no") : input).focus();
  });
}

export function login(problem, session, done) {
  const dialog = $("login");
  $("login-problem").hidden = !problem;
  $("login-problem").textContent = problem ?? "";
  if (dialog.open) return;
  $("token").value = "";
  $("login-namespace").value = session.namespace;
  $("login-form").onsubmit = (event) => {
    event.preventDefault();
    session.set($("token").value.trim(), $("login-namespace").value.trim());
    $("token").value = "";
    dialog.close();
    done();
  };
  $("login-cancel").onclick = () => dialog.close();
  dialog.showModal();
  $("token").focus();
}
