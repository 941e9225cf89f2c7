// Rates and quantiles: differences between two snapshots of the counters.
const SUM = (counts) => Object.values(counts).reduce((total, n) => total + n, 0);
const WINDOW = 10; // samples that a quantile is taken over

export function figures(snapshot) {
  const binds = snapshot.binds;
  return {
    at: snapshot.at_ms / 1000,
    resolves: SUM(snapshot.resolutions),
    binds: (binds.bind ?? 0) + (binds.rebound ?? 0),
    resets: SUM(snapshot.resets),
    degraded: snapshot.degraded,
    rollbacks: snapshot.rollbacks,
    undurable: snapshot.undurable,
    fences: SUM(snapshot.fence_rejections),
    errors: SUM(snapshot.store_errors) - (snapshot.store_errors.noscript ?? 0), // a script that is loaded anew is no error
    bounds: snapshot.store.bounds_s,
    buckets: snapshot.store.bounds_s.map((_, i) => Object.values(snapshot.store.counts).reduce((sum, row) => sum + row[i], 0)),
    started: snapshot.started_ms,
  };
}

export function quantile(bounds, counts, q) {
  const total = counts.reduce((sum, n) => sum + n, 0);
  if (!total) return null;
  let left = q * total;
  for (let i = 0; i < counts.length; i += 1) {
    if (counts[i] && left <= counts[i]) {
      const low = i ? bounds[i - 1] : 0;
      if (bounds[i] === null) return low; // beyond the last bound: at least that
      return low + (bounds[i] - low) * (left / counts[i]);
    }
    left -= counts[i];
  }
  return bounds.findLast((bound) => bound !== null) ?? null;
}

export class Series {
  constructor(length) {
    this.length = length;
    this.clear();
  }

  clear() {
    this.samples = [];
    this.rows = { at: [], resolves: [], binds: [], resets: [], degraded: [], p50: [], p99: [] };
  }

  add(now) {
    const last = this.samples.at(-1);
    if (last && (now.resolves < last.resolves || now.started !== last.started && now.resolves === 0)) this.clear(); // restarted
    const before = this.samples.at(-1);
    if (before && now.at - before.at < 0.2) return false;
    this.samples.push(now);
    if (this.samples.length > this.length) this.samples.shift();
    if (!before) return true;
    const seconds = now.at - before.at;
    const far = this.samples[Math.max(0, this.samples.length - 1 - WINDOW)];
    const counts = now.buckets.map((n, i) => Math.max(0, n - (far.buckets[i] ?? 0)));
    const row = { at: now.at, p50: quantile(now.bounds, counts, 0.5), p99: quantile(now.bounds, counts, 0.99) };
    for (const name of ["resolves", "binds", "resets", "degraded"]) row[name] = (now[name] - before[name]) / seconds;
    for (const [name, values] of Object.entries(this.rows)) {
      values.push(row[name]);
      if (values.length > this.length) values.shift();
    }
    return true;
  }

  get latest() {
    if (!this.rows.at.length) return null;
    return Object.fromEntries(Object.entries(this.rows).map(([name, values]) => [name, values.at(-1)]));
  }
}
