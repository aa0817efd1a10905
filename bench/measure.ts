/** One line of the table. */
export interface Row {
  measure: string;
  value: string;
  peer: string;
  /** The ratio or difference the goal is about. */
  result: string;
  goal: string;
  isMet: boolean;
}

/** A measure of its own: what it needs it starts and ends itself. */
export interface Measure {
  name: string;
  run(): Promise<Row[]>;
}

/** Milliseconds with the digits that mean something. */
export function ms(value: number): string {
  return `${value < 10 ? value.toFixed(2) : value.toFixed(0)} ms`;
}
