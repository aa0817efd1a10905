/** A queue in which owners take turns, so that one who brings many does not keep the others waiting. */
export interface FairQueue<T> {
  readonly size: number;
  add(owner: string, item: T): void;
  /** The next item, or undefined when there is none. */
  take(): T | undefined;
  /** Removes an item that is still waiting; false when it is not. */
  remove(item: T): boolean;
}

export function createFairQueue<T>(): FairQueue<T> {
  /** In turn order: an owner who was served goes to the end. */
  const waiting = new Map<string, T[]>();
  let size = 0;
  return {
    get size() {
      return size;
    },
    add(owner, item) {
      const own = waiting.get(owner);
      if (own) own.push(item);
      else waiting.set(owner, [item]);
      size++;
    },
    take() {
      const next = waiting.entries().next();
      if (next.done) return undefined;
      const [owner, items] = next.value;
      const item = items.shift();
      waiting.delete(owner);
      if (items.length > 0) waiting.set(owner, items);
      size--;
      return item;
    },
    remove(item) {
      for (const [owner, items] of waiting) {
        const index = items.indexOf(item);
        if (index < 0) continue;
        items.splice(index, 1);
        if (items.length === 0) waiting.delete(owner);
        size--;
        return true;
      }
      return false;
    },
  };
}
