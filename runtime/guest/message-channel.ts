// biome-ignore-all lint/complexity/noArguments: the standards tell a missing argument from an undefined one
/** MessageChannel and MessagePort (HTML §9.4): messages are cloned when posted and delivered in a task of their own. */

import { DOMException } from "./dom-exception.ts";
import { defineHandler, type Event, EventTarget, MessageEvent } from "./events.ts";
import { addTransferable, cloneWithTransfer } from "./structured-clone.ts";
import { startTimer } from "./timers.ts";

interface Message {
  data: unknown;
  ports: object[];
}

const construct = Symbol("construct");
let entangle: (one: MessagePort, other: MessagePort) => void;
let isPort: (value: object) => value is MessagePort;
let handOver: (port: MessagePort) => MessagePort;

export class MessagePort extends EventTarget {
  #peer: MessagePort | null = null;
  #queue: Message[] = [];
  #isStarted = false;
  #isClosed = false;
  #isScheduled = false;

  static {
    entangle = (one, other) => {
      one.#peer = other;
      other.#peer = one;
    };
    isPort = (value): value is MessagePort => #queue in value;
    handOver = (port) => {
      if (port.#isClosed) throw new DOMException("A closed MessagePort cannot be transferred.", "DataCloneError");
      const successor = new MessagePort(construct);
      if (port.#peer !== null) entangle(successor, port.#peer);
      successor.#queue = port.#queue;
      port.#queue = [];
      port.#peer = null;
      port.#isClosed = true;
      return successor;
    };
  }

  constructor(token?: unknown) {
    if (token !== construct) throw new TypeError("Illegal constructor");
    super();
  }

  postMessage(message: unknown, options: Iterable<object> | { transfer?: Iterable<object> } = []): void {
    if (arguments.length === 0) throw new TypeError("postMessage needs a message.");
    const transfer = [...(Symbol.iterator in options ? options : (options?.transfer ?? []))];
    if (transfer.includes(this)) throw new DOMException("A port cannot be posted through itself.", "DataCloneError");
    const { value, transferred } = cloneWithTransfer(message, transfer);
    const peer = this.#peer;
    if (peer === null || peer.#isClosed) return;
    peer.#queue.push({ data: value, ports: transferred.filter((object) => isPort(object)) });
    peer.#schedule();
  }

  start(): void {
    this.#isStarted = true;
    this.#schedule();
  }

  close(): void {
    this.#isClosed = true;
    this.#queue = [];
    const peer = this.#peer;
    this.#peer = null;
    if (peer !== null) peer.#peer = null;
  }

  /** One message a task, so that what a listener starts runs before the next. */
  #schedule(): void {
    if (!this.#isStarted || this.#isScheduled || this.#queue.length === 0) return;
    this.#isScheduled = true;
    startTimer(
      () => {
        this.#isScheduled = false;
        const message = this.#queue.shift();
        this.#schedule();
        if (message !== undefined && !this.#isClosed) this.dispatchEvent(new MessageEvent("message", message));
      },
      0,
      false,
    );
  }

  override get [Symbol.toStringTag](): string {
    return "MessagePort";
  }
  declare onmessage: ((event: Event) => void) | null;
  declare onmessageerror: ((event: Event) => void) | null;
}
// Setting the attribute starts the port, adding a listener does not.
defineHandler(MessagePort.prototype, "message", (port) => (port as MessagePort).start());
defineHandler(MessagePort.prototype, "messageerror");
addTransferable(isPort, (port) => handOver(port as MessagePort));

export class MessageChannel {
  #port1 = new MessagePort(construct);
  #port2 = new MessagePort(construct);
  constructor() {
    entangle(this.#port1, this.#port2);
  }
  get port1(): MessagePort {
    return this.#port1;
  }
  get port2(): MessagePort {
    return this.#port2;
  }
  get [Symbol.toStringTag](): string {
    return "MessageChannel";
  }
}
