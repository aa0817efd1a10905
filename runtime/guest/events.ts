// biome-ignore-all lint/complexity/noArguments: the standards tell a missing argument from an undefined one
/** Events (DOM §2): Event, CustomEvent, ErrorEvent, MessageEvent, PromiseRejectionEvent and EventTarget. */
import { DOMException } from "./dom-exception.ts";
import { dateNow, reflectApply } from "./primordials.ts";

interface EventInit {
  bubbles?: boolean;
  cancelable?: boolean;
  composed?: boolean;
}

let begin: (event: Event, target: EventTarget) => void;
let finish: (event: Event) => void;
let callOne: (event: Event, listener: Listener, target: EventTarget) => void;
let isStopped: (event: Event) => boolean;
let isPrevented: (event: Event) => boolean;
let typeOf: (event: Event) => string;

export class Event {
  static readonly NONE = 0;
  static readonly CAPTURING_PHASE = 1;
  static readonly AT_TARGET = 2;
  static readonly BUBBLING_PHASE = 3;
  #type: string;
  #bubbles: boolean;
  #cancelable: boolean;
  #composed: boolean;
  #target: EventTarget | null = null;
  #phase = 0;
  #isPrevented = false;
  #isStopped = false;
  #isHalted = false;
  #isPassive = false;
  #timeStamp = dateNow() - timeOrigin;

  static {
    begin = (event, target) => {
      if (event.#phase !== 0) throw new DOMException("The event is being dispatched already.", "InvalidStateError");
      event.#target = target;
      event.#phase = 2;
    };
    finish = (event) => {
      event.#phase = 0;
      event.#isStopped = false;
      event.#isHalted = false;
    };
    callOne = (event, listener, target) => {
      event.#isPassive = listener.passive;
      try {
        const { callback } = listener;
        if (typeof callback === "function") reflectApply(callback, target, [event]);
        else callback.handleEvent(event);
      } catch (error) {
        report(error);
      } finally {
        event.#isPassive = false;
      }
    };
    isStopped = (event) => event.#isHalted;
    isPrevented = (event) => event.#isPrevented;
    typeOf = (event) => event.#type;
  }

  constructor(type: string, init: EventInit = {}) {
    if (arguments.length === 0) throw new TypeError("Event needs a type.");
    this.#type = `${type}`;
    this.#bubbles = Boolean(init?.bubbles);
    this.#cancelable = Boolean(init?.cancelable);
    this.#composed = Boolean(init?.composed);
  }

  get type(): string {
    return this.#type;
  }
  get target(): EventTarget | null {
    return this.#target;
  }
  get srcElement(): EventTarget | null {
    return this.#target;
  }
  get currentTarget(): EventTarget | null {
    return this.#phase === 0 ? null : this.#target;
  }
  get eventPhase(): number {
    return this.#phase;
  }
  get bubbles(): boolean {
    return this.#bubbles;
  }
  get cancelable(): boolean {
    return this.#cancelable;
  }
  get composed(): boolean {
    return this.#composed;
  }
  get defaultPrevented(): boolean {
    return this.#isPrevented;
  }
  get returnValue(): boolean {
    return !this.#isPrevented;
  }
  get isTrusted(): boolean {
    return false;
  }
  get timeStamp(): number {
    return this.#timeStamp;
  }
  get cancelBubble(): boolean {
    return this.#isStopped;
  }
  set cancelBubble(value: boolean) {
    if (value) this.#isStopped = true;
  }
  composedPath(): EventTarget[] {
    return this.#phase === 0 || this.#target === null ? [] : [this.#target];
  }
  preventDefault(): void {
    if (this.#cancelable && !this.#isPassive) this.#isPrevented = true;
  }
  stopPropagation(): void {
    this.#isStopped = true;
  }
  stopImmediatePropagation(): void {
    this.#isStopped = true;
    this.#isHalted = true;
  }
  get [Symbol.toStringTag](): string {
    return this.constructor.name;
  }
  declare readonly NONE: 0;
  declare readonly CAPTURING_PHASE: 1;
  declare readonly AT_TARGET: 2;
  declare readonly BUBBLING_PHASE: 3;
}
for (const [name, value] of [
  ["NONE", 0],
  ["CAPTURING_PHASE", 1],
  ["AT_TARGET", 2],
  ["BUBBLING_PHASE", 3],
] as const) {
  Object.defineProperty(Event, name, { value, enumerable: true });
  Object.defineProperty(Event.prototype, name, { value, enumerable: true });
}

export class CustomEvent extends Event {
  #detail: unknown;
  constructor(type: string, init: EventInit & { detail?: unknown } = {}) {
    super(type, init);
    this.#detail = init?.detail ?? null;
  }
  get detail(): unknown {
    return this.#detail;
  }
}

export class ErrorEvent extends Event {
  #init: { message?: string; filename?: string; lineno?: number; colno?: number; error?: unknown };
  constructor(
    type: string,
    init: EventInit & { message?: string; filename?: string; lineno?: number; colno?: number; error?: unknown } = {},
  ) {
    super(type, init);
    this.#init = { ...init };
  }
  get message(): string {
    return this.#init.message === undefined ? "" : `${this.#init.message}`;
  }
  get filename(): string {
    return this.#init.filename === undefined ? "" : `${this.#init.filename}`;
  }
  get lineno(): number {
    return Number(this.#init.lineno ?? 0);
  }
  get colno(): number {
    return Number(this.#init.colno ?? 0);
  }
  get error(): unknown {
    return this.#init.error;
  }
}

export class PromiseRejectionEvent extends Event {
  #promise: unknown;
  #reason: unknown;
  constructor(type: string, init: EventInit & { promise: unknown; reason?: unknown }) {
    super(type, init);
    if (init === undefined || !("promise" in init)) throw new TypeError("PromiseRejectionEvent needs a promise.");
    this.#promise = init.promise;
    this.#reason = init.reason;
  }
  get promise(): unknown {
    return this.#promise;
  }
  get reason(): unknown {
    return this.#reason;
  }
}

export class MessageEvent extends Event {
  #init: { data?: unknown; origin?: string; lastEventId?: string; source?: unknown; ports?: readonly unknown[] };
  constructor(
    type: string,
    init: EventInit & { data?: unknown; origin?: string; lastEventId?: string; source?: unknown; ports?: readonly unknown[] } = {},
  ) {
    super(type, init);
    this.#init = { ...init, ports: Object.freeze([...(init?.ports ?? [])]) };
  }
  get data(): unknown {
    return this.#init.data ?? null;
  }
  get origin(): string {
    return this.#init.origin ?? "";
  }
  get lastEventId(): string {
    return this.#init.lastEventId ?? "";
  }
  get source(): unknown {
    return this.#init.source ?? null;
  }
  get ports(): readonly unknown[] {
    return this.#init.ports ?? [];
  }
}

type Callback = ((event: Event) => void) | { handleEvent(event: Event): void };
interface Signal {
  aborted: boolean;
  addEventListener(type: string, listener: () => void, options: { once: true }): void;
}
interface Listener {
  type: string;
  callback: Callback;
  capture: boolean;
  once: boolean;
  passive: boolean;
  isRemoved: boolean;
}
function copyOf(listeners: readonly Listener[]): Listener[] {
  const copy: Listener[] = [];
  for (let index = 0; index < listeners.length; index++) copy[index] = listeners[index] as Listener;
  return copy;
}

interface ListenOptions {
  capture?: boolean;
  once?: boolean;
  passive?: boolean;
  signal?: Signal;
}

/** `dispatchEvent`, whatever a program has put in its place. */
export let dispatch: (target: EventTarget, event: Event) => boolean;
let isEventTarget: (value: unknown) => value is EventTarget;

export class EventTarget {
  #listeners: Listener[] = [];

  static {
    dispatch = (target, event) => {
      begin(event, target);
      try {
        const listeners = target.#listeners;
        const type = typeOf(event);
        for (let index = 0; index < listeners.length; index++) {
          const listener = listeners[index] as Listener;
          if (listener.type !== type || listener.isRemoved) continue;
          if (listener.once) target.#remove(target.#indexOf(listener.type, listener.callback, listener.capture));
          callOne(event, listener, target);
          if (isStopped(event)) break;
        }
      } finally {
        finish(event);
      }
      return !isPrevented(event);
    };
    isEventTarget = (value): value is EventTarget => typeof value === "object" && value !== null && #listeners in value;
  }

  addEventListener(type: string, callback: Callback | null, options: boolean | ListenOptions = {}): void {
    const capture = typeof options === "boolean" ? options : Boolean(options?.capture);
    const detailed = typeof options === "object" && options !== null ? options : {};
    if (callback === null || callback === undefined) return;
    if (typeof callback !== "function" && typeof callback !== "object")
      throw new TypeError("An event listener must be a function or an object.");
    const { signal } = detailed;
    if (signal?.aborted) return;
    const name = `${type}`;
    if (this.#indexOf(name, callback, capture) >= 0) return;
    // A list of its own, so that a dispatch that is going on keeps to the one it began with.
    const listeners = copyOf(this.#listeners);
    listeners[listeners.length] = {
      type: name,
      callback,
      capture,
      once: Boolean(detailed.once),
      passive: Boolean(detailed.passive),
      isRemoved: false,
    };
    this.#listeners = listeners;
    signal?.addEventListener("abort", () => this.removeEventListener(name, callback, capture), { once: true });
  }

  removeEventListener(type: string, callback: Callback | null, options: boolean | { capture?: boolean } = {}): void {
    const capture = typeof options === "boolean" ? options : Boolean(options?.capture);
    this.#remove(this.#indexOf(`${type}`, callback, capture));
  }

  #indexOf(type: string, callback: Callback | null, capture: boolean): number {
    for (let index = 0; index < this.#listeners.length; index++) {
      const listener = this.#listeners[index] as Listener;
      if (listener.type === type && listener.callback === callback && listener.capture === capture) return index;
    }
    return -1;
  }

  #remove(at: number): void {
    const removed = this.#listeners[at];
    if (at < 0 || removed === undefined) return;
    removed.isRemoved = true;
    const others: Listener[] = [];
    for (let index = 0; index < this.#listeners.length; index++)
      if (index !== at) others[others.length] = this.#listeners[index] as Listener;
    this.#listeners = others;
  }

  dispatchEvent(event: Event): boolean {
    if (!(event instanceof Event)) throw new TypeError("dispatchEvent needs an Event.");
    return dispatch(this, event);
  }

  get [Symbol.toStringTag](): string {
    return "EventTarget";
  }
}

/** Gives an object's prototype the `on<type>` attribute of an event handler. */
export function defineHandler(prototype: object, type: string, changed?: (target: EventTarget) => void): void {
  const handlers = new WeakMap<object, { current: ((event: Event) => void) | null }>();
  Object.defineProperty(prototype, `on${type}`, {
    configurable: true,
    enumerable: true,
    get(this: EventTarget) {
      if (!isEventTarget(this)) throw new TypeError("Illegal invocation");
      return handlers.get(this)?.current ?? null;
    },
    set(this: EventTarget, value: unknown) {
      if (!isEventTarget(this)) throw new TypeError("Illegal invocation");
      const callable = typeof value === "function" ? (value as (event: Event) => void) : null;
      const known = handlers.get(this);
      if (known !== undefined) known.current = callable;
      else {
        const slot = { current: callable };
        handlers.set(this, slot);
        this.addEventListener(type, (event) => slot.current?.call(this, event));
      }
      changed?.(this);
    },
  });
}

/** When this isolate's clock began: milliseconds since the epoch. */
export let timeOrigin = Date.now();
/** Starts the clock anew: at boot, since the kit may have been evaluated long before, in a snapshot. */
export function startClock(): void {
  timeOrigin = Date.now();
}

let report: (error: unknown) => void = () => {};
/** Where the errors of event listeners go (`reportError`). */
export function onListenerError(handler: (error: unknown) => void): void {
  report = handler;
}
