/** A source of chance that can be told again. */
export interface Chance {
  /** A whole number of `low` … `high`. */
  between(low: number, high: number): number;
  pick<T>(from: readonly T[]): T;
  shuffled<T>(from: readonly T[]): T[];
}

/** Chance from KAPSTONE_FAULT_SEED, else from the clock; the seed is printed, so that a failure can be told again. The generator is mulberry32. */
export function chance(name: string): Chance {
  const seed = Number(process.env.KAPSTONE_FAULT_SEED ?? Date.now() % 1_000_000_007);
  console.log(`${name}: KAPSTONE_FAULT_SEED=${seed}`);
  let state = seed >>> 0;
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const between = (low: number, high: number): number => low + Math.floor(next() * (high - low + 1));
  return {
    between,
    pick<T>(from: readonly T[]): T {
      if (from.length === 0) throw new Error("there is nothing to pick from");
      return from[between(0, from.length - 1)] as T;
    },
    shuffled<T>(from: readonly T[]): T[] {
      const left = [...from];
      return from.map(() => left.splice(between(0, left.length - 1), 1)[0] as T);
    },
  };
}
