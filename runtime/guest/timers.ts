/** setTimeout and setInterval (HTML §8.6) over the host's timers. A timer belongs to the run that started it and ends with it. */
import { currentRunKey } from "./current-run.ts";
import { host } from "./host.ts";
import { OwnedMap } from "./owned-map.ts";
import { mathTrunc, reflectApply } from "./primordials.ts";

interface Timer {
  runKey: number;
  callback: () => void;
  isRepeating: boolean;
}

const timers = new OwnedMap<Timer>();
let lastTimerId = 0;

/** Starts a timer of the current run; answers its number. */
export function startTimer(callback: () => void, delayMs: number, isRepeating: boolean): number {
  const timerId = ++lastTimerId;
  const runKey = currentRunKey();
  timers.add(timerId, { runKey, callback, isRepeating });
  host.startTimer(timerId, runKey, delayMs, isRepeating);
  return timerId;
}

export function stopTimer(timerId: number): void {
  if (timers.remove(timerId)) host.stopTimer(timerId);
}

/** The host says a timer is due. */
export function fireTimer(timerId: number): void {
  const timer = timers.get(timerId);
  if (timer === undefined) return;
  if (!timer.isRepeating) timers.remove(timerId);
  timer.callback();
}

/** Forgets the timers of an ended run; the host has dropped its own. */
export const dropTimers = (runKey: number): void => timers.drop(runKey);

/** Delays are whole milliseconds from 0 to 2^31-1; anything else is 0, as in browsers. */
function delayOf(given: unknown): number {
  const delay = mathTrunc(Number(given));
  return delay > 0 && delay <= 2_147_483_647 ? delay : 0;
}

function start(callback: unknown, delay: unknown, rest: unknown[], isRepeating: boolean): number {
  if (typeof callback !== "function") throw new TypeError("A timer needs a function: text is never run as code here.");
  return startTimer(() => reflectApply(callback as () => void, undefined, rest), delayOf(delay), isRepeating);
}

export const setTimeout = (callback: unknown, delay?: unknown, ...rest: unknown[]): number => start(callback, delay, rest, false);
export const setInterval = (callback: unknown, delay?: unknown, ...rest: unknown[]): number => start(callback, delay, rest, true);
export const clearTimeout = (timerId?: unknown): void => stopTimer(Number(timerId));
export const clearInterval = (timerId?: unknown): void => stopTimer(Number(timerId));
