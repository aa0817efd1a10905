/** Things that belong to runs, by number: the timers and the host calls that are pending. Dropping a run that has none costs nothing. */
import { mapDelete, mapForEach, mapGet, mapSet, SafeMap } from "./primordials.ts";

interface Owned {
  runKey: number;
}

export class OwnedMap<T extends Owned> {
  readonly #items = new SafeMap<number, T>();
  /** How many items a run has; runs without any are absent. */
  readonly #counts = new SafeMap<number, number>();

  add(id: number, item: T): void {
    mapSet(this.#items, id, item);
    mapSet(this.#counts, item.runKey, (mapGet(this.#counts, item.runKey) ?? 0) + 1);
  }

  get(id: number): T | undefined {
    return mapGet(this.#items, id);
  }

  /** Removes an item; false when it was not there. */
  remove(id: number): boolean {
    const item = mapGet(this.#items, id);
    if (item === undefined) return false;
    mapDelete(this.#items, id);
    const left = (mapGet(this.#counts, item.runKey) ?? 1) - 1;
    if (left > 0) mapSet(this.#counts, item.runKey, left);
    else mapDelete(this.#counts, item.runKey);
    return true;
  }

  /** Removes all items of a run. */
  drop(runKey: number): void {
    if (!mapDelete(this.#counts, runKey)) return;
    const items = this.#items;
    mapForEach(items, (item, id) => {
      if (item.runKey === runKey) mapDelete(items, id);
    });
  }
}
