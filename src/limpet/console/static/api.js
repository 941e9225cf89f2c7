// The service's own API. The token lives in this tab (sessionStorage), never in a URL.
const TOKEN = "limpet.token";
const NAMESPACE = "limpet.namespace";
const memory = new Map();

function load(name) {
  try { return sessionStorage.getItem(name) ?? memory.get(name) ?? ""; } catch { return memory.get(name) ?? ""; }
}

function save(name, value) {
  memory.set(name, value);
  try {
    if (value) sessionStorage.setItem(name, value); else sessionStorage.removeItem(name);
  } catch { /* storage may be denied: memory will do */ }
}

export class Problem extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

export const session = {
  get token() { return load(TOKEN); },
  get namespace() { return load(NAMESPACE); },
  set(token, namespace) { save(TOKEN, token); save(NAMESPACE, namespace); },
};

export function headers(more = {}) {
  const out = new Headers(more);
  if (session.token) out.set("Authorization", `Bearer ${session.token}`);
  if (session.namespace) out.set("X-Limpet-Namespace", session.namespace);
  return out;
}

export async function refusal(answer) {
  let code = "not_limpet", detail = `The service answered with HTTP ${answer.status}.`;
  try {
    const body = await answer.json();
    code = body.code ?? code;
    detail = body.detail ?? detail;
  } catch { /* no problem document: what stands above says it */ }
  return new Problem(answer.status, code, detail);
}

export async function ask(method, path, body) {
  const more = { Accept: "application/json" };
  if (body !== undefined) {
    more["Content-Type"] = "application/json";
    more["Idempotency-Key"] = crypto.randomUUID?.() ?? `console-${performance.now()}-${Math.random()}`;
  }
  let answer;
  try {
    answer = await fetch(path, {
      method, headers: headers(more), body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store", credentials: "omit", redirect: "error", signal: AbortSignal.timeout(10_000),
    });
  } catch {
    throw new Problem(0, "unreachable", "The service does not answer. Trying again.");
  }
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}

export const get = (path) => ask("GET", path);
export const post = (path, body) => ask("POST", path, body ?? {});
export const name = encodeURIComponent;
