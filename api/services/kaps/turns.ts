const tails = new Map<string, Promise<unknown>>();

/**
 * Runs `act` after everything that was begun under the same key in this process has ended. Only an order, never a lock: what must not happen twice
 * is decided in PostgreSQL. It keeps two hundred saves of one kap from building two hundred programs of which one can win.
 */
export function inTurn<T>(key: string, act: () => Promise<T>): Promise<T> {
  const before = tails.get(key) ?? Promise.resolve();
  const turn = before.then(act, act);
  const tail = turn.then(
    () => undefined,
    () => undefined,
  );
  tails.set(key, tail);
  void tail.then(() => {
    if (tails.get(key) === tail) tails.delete(key);
  });
  return turn;
}
