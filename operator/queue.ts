/** Keys to be worked on. A key that is added again while it waits is worked on once; one that is added while it is worked on, once more after. */
export interface WorkQueue {
  /** Lets the workers begin; keys may be added before. */
  start(): void;
  add(key: string): void;
  /** Adds the key after a while; the earliest of several wishes for one key counts. */
  addAfter(key: string, ms: number): void;
  /** Keys that wait for a worker now. */
  depth(): number;
  /** Milliseconds since anything moved although something should: a worker that never ends, or keys that no worker takes. */
  stuckMs(): number;
  /** Takes no more and waits for what is under way, at most `ms`. */
  close(ms: number): Promise<void>;
}

export interface QueueOptions {
  workers: number;
  /** Works on a key; answers the milliseconds after which it wants to be asked again, if so. What it throws delays the key by its own backoff. */
  work(key: string): Promise<number | undefined>;
  /** Told after each time. */
  onDone?(key: string, error: unknown): void;
  /** First and longest pause after failures of one key, in ms. */
  backoff?: { minMs: number; maxMs: number };
  random?: () => number;
}

/**
 * A keyed work queue: keys, not events, so that whoever works on one reads the state as it is now; one key is with one worker at a time; a key
 * that fails waits longer each time (with jitter, never beyond the bound) and holds up no other.
 */
export function createQueue(options: QueueOptions): WorkQueue {
  const { minMs, maxMs } = options.backoff ?? { minMs: 250, maxMs: 15_000 };
  const random = options.random ?? Math.random;
  const waiting = new Set<string>(); // in order
  const running = new Map<string, number>(); // since when
  const again = new Set<string>();
  const failures = new Map<string, number>();
  const timers = new Map<string, { at: number; timer: NodeJS.Timeout }>();
  let movedAt = performance.now();
  let isStarted = false;
  let isClosed = false;
  let onIdle: (() => void) | undefined;

  const add = (key: string): void => {
    if (isClosed) return;
    const timed = timers.get(key);
    if (timed) {
      clearTimeout(timed.timer);
      timers.delete(key);
    }
    if (running.has(key)) again.add(key);
    else {
      if (waiting.size === 0) movedAt = performance.now();
      waiting.add(key);
      takeNext();
    }
  };
  const addAfter = (key: string, ms: number): void => {
    if (isClosed) return;
    const at = performance.now() + ms;
    const known = timers.get(key);
    if (known && known.at <= at) return;
    clearTimeout(known?.timer);
    timers.set(key, { at, timer: setTimeout(() => add(key), ms) });
  };

  function takeNext(): void {
    while (isStarted && running.size < options.workers && !isClosed) {
      const [key] = waiting;
      if (key === undefined) return;
      waiting.delete(key);
      movedAt = performance.now();
      running.set(key, movedAt);
      void run(key);
    }
  }

  async function run(key: string): Promise<void> {
    let failure: unknown;
    let next: number | undefined;
    try {
      next = await options.work(key);
      failures.delete(key);
    } catch (error) {
      failure = error ?? new Error("failed without a reason");
      const count = (failures.get(key) ?? 0) + 1;
      failures.set(key, count);
      next = Math.min(maxMs, minMs * 2 ** Math.min(count - 1, 20)) * (0.5 + random() / 2);
    }
    running.delete(key);
    movedAt = performance.now();
    options.onDone?.(key, failure);
    // What changed meanwhile is looked at at once, unless the key is failing: then it waits its turn.
    if (again.delete(key) && failure === undefined) add(key);
    else if (next !== undefined) addAfter(key, next);
    takeNext();
    if (running.size === 0) onIdle?.();
  }

  return {
    start() {
      isStarted = true;
      movedAt = performance.now();
      takeNext();
    },
    add,
    addAfter,
    depth: () => waiting.size,
    stuckMs() {
      const now = performance.now();
      const longest = Math.max(0, ...[...running.values()].map((since) => now - since));
      return isStarted && waiting.size > 0 ? Math.max(longest, now - movedAt) : longest;
    },
    async close(ms) {
      isClosed = true;
      waiting.clear();
      for (const { timer } of timers.values()) clearTimeout(timer);
      timers.clear();
      if (running.size === 0) return;
      await new Promise<void>((resolve) => {
        const late = setTimeout(resolve, ms);
        onIdle = () => {
          clearTimeout(late);
          resolve();
        };
      });
    },
  };
}
