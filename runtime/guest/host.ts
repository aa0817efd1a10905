/** The host's side of the bridge as the kit sees it: the captured callbacks, and asynchronous calls on top of them. */
import type { GuestCallbacks } from "../seam/guest-callbacks.ts";
import { DOMException, isDomExceptionName } from "./dom-exception.ts";
import { OwnedMap } from "./owned-map.ts";
import { defineProperty, hasOwn, jsonParse, NativePromise, ownKeys, plainProperty, stringSlice } from "./primordials.ts";
import { wireJson } from "./wire-json.ts";

export type Host = Omit<GuestCallbacks, "now">;

/** The host's callbacks. Never handed to anything a program can reach. */
export let host: Host;

/** Takes the callbacks out of the object the host installed. */
export function bindHost(given: Host): void {
  const { respond, chunk, end, fail, done, call, sync, log, startTimer, stopTimer } = given;
  host = { respond, chunk, end, fail, done, call, sync, log, startTimer, stopTimer };
}

/** What a host call answers: text, bytes, or both. */
export interface Answer {
  ok: boolean;
  text: string | undefined;
  bytes: ArrayBuffer | undefined;
}

interface Pending {
  runKey: number;
  resolve: (answer: Answer) => void;
}

const pending = new OwnedMap<Pending>();
let lastCallId = 0;

/**
 * Calls the host on behalf of a run. Rejects with the host's error, made after the wait so that its stack names the program's own frames.
 * When the run ends first, the promise never settles: no code of an ended run is woken.
 */
export async function callHost(runKey: number, op: string, argument: unknown, bytes?: ArrayBuffer): Promise<Answer> {
  const text = argument === undefined ? "" : wireJson(argument);
  const callId = ++lastCallId;
  const answer = await new NativePromise<Answer>((resolve) => {
    pending.add(callId, { runKey, resolve });
    host.call(callId, runKey, op, text, bytes);
  });
  if (!answer.ok) throw hostError(answer.text);
  return answer;
}

/** The host's answer to a call (`settle`). Answers nobody waits for are dropped. */
export function settleCall(callId: number, ok: boolean, text: string | undefined, bytes: ArrayBuffer | undefined): void {
  const waiting = pending.get(callId);
  if (waiting === undefined) return;
  pending.remove(callId);
  waiting.resolve({ __proto__: null, ok, text, bytes } as Answer);
}

/** Drops the calls of an ended run without waking anybody. */
export const dropCalls = (runKey: number): void => pending.drop(runKey);

/** A call the host answers at once. The host's text answers begin with `=`, its errors with `!` and a JSON object. */
export function syncText(op: string, text: string, bytes?: ArrayBuffer): string {
  const answer = syncAnswer(op, text, bytes);
  if (typeof answer !== "string") throw new TypeError(`${op} answered bytes`);
  return answer;
}

/** As `syncText`, for operations that answer bytes. */
export function syncBytes(op: string, text: string, bytes?: ArrayBuffer): ArrayBuffer {
  const answer = syncAnswer(op, text, bytes);
  if (typeof answer === "string") throw new TypeError(`${op} answered text`);
  return answer;
}

function syncAnswer(op: string, text: string, bytes: ArrayBuffer | undefined): string | ArrayBuffer {
  const answer = host.sync(op, text, bytes);
  if (typeof answer !== "string") return answer;
  if (answer[0] === "!") throw hostError(stringSlice(answer, 1));
  return stringSlice(answer, 1);
}

const natives: Record<string, new (message: string) => Error> = Object.assign(Object.create(null), {
  TypeError,
  RangeError,
  SyntaxError,
});

/** The error a host answer `{name, message, code?, …}` stands for: a native error, a DOMException, or an Error with name and code. */
function hostError(text: string | undefined): Error {
  const given = (text ? jsonParse(text) : {}) as Record<string, unknown>;
  const name = hasOwn(given, "name") ? String(given.name) : "Error";
  const message = hasOwn(given, "message") ? String(given.message) : "The platform refused the call.";
  const native = natives[name];
  if (native === undefined && isDomExceptionName(name)) return new DOMException(message, name);
  const error = native === undefined ? new Error(message) : new native(message);
  if (native === undefined && name !== "Error") defineProperty(error, "name", plainProperty(name, false));
  const keys = ownKeys(given);
  for (let index = 0; index < keys.length; index++) {
    const key = keys[index] as string;
    if (key !== "name" && key !== "message") defineProperty(error, key, plainProperty(given[key], true));
  }
  return error;
}
