/** A runtime with more than this share of the runs it takes at once gets no more calls while another of the kap has less: the others stay idle until then. */
const busyShare = 0.5;
/** When even the least busy runtime of a kap has this share, the kap needs one more. */
const fullShare = 0.8;

/** Calls in flight through this process, by runtime. Runtimes' ids are never used again, so one map serves all. */
const inFlight = new Map<string, number>();
/** Runtimes with calls in flight, by the kap's name (or the secret that stands for it). */
const known = new Map<string, Set<string>>();

/** Runtimes of a kap that are busy, the least busy first: a call goes to any other, else to the first of them. */
export function busyRuntimes(key: string, concurrency: number): string[] {
  const ids = known.get(key);
  if (!ids) return [];
  const from = concurrency * busyShare;
  const busy = [...ids].filter((id) => (inFlight.get(id) ?? 0) >= from);
  return busy.length < 2 ? busy : busy.sort((a, b) => (inFlight.get(a) ?? 0) - (inFlight.get(b) ?? 0));
}

/** A call sets out for a runtime. Answers whether that runtime, the least busy of its kap, is nearly full. */
export function beginFlight(key: string, runtimeId: string, concurrency: number): boolean {
  const count = (inFlight.get(runtimeId) ?? 0) + 1;
  inFlight.set(runtimeId, count);
  let ids = known.get(key);
  if (!ids) {
    ids = new Set();
    known.set(key, ids);
  }
  ids.add(runtimeId);
  return count > concurrency * fullShare;
}

/** The call is over, however it ended. */
export function endFlight(key: string, runtimeId: string): void {
  const count = (inFlight.get(runtimeId) ?? 1) - 1;
  if (count > 0) {
    inFlight.set(runtimeId, count);
    return;
  }
  inFlight.delete(runtimeId);
  const ids = known.get(key);
  ids?.delete(runtimeId);
  if (ids?.size === 0) known.delete(key);
}
