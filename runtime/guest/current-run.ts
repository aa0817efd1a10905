/** Which run the code that executes now works for: set by every entry of the host, kept until the next one (microtasks included). */
let current = 0;
export const currentRunKey = (): number => current;
export function enterRun(runKey: number): void {
  current = runKey;
}
