import { describe } from "vitest";
import { conformance } from "./testing-cases.ts";

describe("events", () => {
  conformance({
    "listeners are called in order, once each": `const t = new EventTarget(); const seen = []; const f = () => seen.push("f"); t.addEventListener("x", f); t.addEventListener("x", f); t.addEventListener("x", { handleEvent(e) { seen.push(e.type); } }); t.dispatchEvent(new Event("x")); return seen;`,
    "once, remove and signal": `const t = new EventTarget(); let n = 0; const f = () => n++; t.addEventListener("x", f, { once: true }); t.addEventListener("x", () => (n += 10), { signal: AbortSignal.abort() }); const c = new AbortController(); t.addEventListener("x", () => (n += 100), { signal: c.signal }); t.dispatchEvent(new Event("x")); c.abort(); t.dispatchEvent(new Event("x")); return n;`,
    "preventDefault needs cancelable": `const t = new EventTarget(); t.addEventListener("x", (e) => e.preventDefault()); return [t.dispatchEvent(new Event("x")), t.dispatchEvent(new Event("x", { cancelable: true }))];`,
    "passive listeners cannot prevent": `const t = new EventTarget(); t.addEventListener("x", (e) => e.preventDefault(), { passive: true }); return t.dispatchEvent(new Event("x", { cancelable: true }));`,
    stopImmediatePropagation: `const t = new EventTarget(); let n = 0; t.addEventListener("x", (e) => { n++; e.stopImmediatePropagation(); }); t.addEventListener("x", () => n++); t.dispatchEvent(new Event("x")); return n;`,
    "attributes during and after": `const t = new EventTarget(); let during; const e = new Event("x"); t.addEventListener("x", (v) => { during = [v.target === t, v.currentTarget === t, v.eventPhase, v.composedPath().length]; }); t.dispatchEvent(e); return [during, e.target === t, e.currentTarget, e.eventPhase, e.composedPath()];`,
    "dispatching twice at once throws": [
      `const t = new EventTarget(); let error; const e = new Event("x"); t.addEventListener("x", () => { try { t.dispatchEvent(e); } catch (x) { error = x.name; } }); t.dispatchEvent(e); return error;`,
      "InvalidStateError",
    ],
    CustomEvent: `const e = new CustomEvent("x", { detail: { a: 1 } }); return [e.detail, e.type, e instanceof Event, new CustomEvent("x").detail];`,
    ErrorEvent: [
      `const e = new ErrorEvent("error", { message: "m", filename: "f", lineno: 3, colno: 4, error: 5 }); return [e.message, e.filename, e.lineno, e.colno, e.error];`,
      ["m", "f", 3, 4, 5],
    ],
    PromiseRejectionEvent: [
      `const e = new PromiseRejectionEvent("unhandledrejection", { promise: Promise.resolve(), reason: 1 }); return [e.reason, e.promise instanceof Promise, await caught(() => new PromiseRejectionEvent("x", {}))];`,
      [1, true, "TypeError"],
    ],
    "subclasses of EventTarget": `class A extends EventTarget { go() { return this.dispatchEvent(new Event("go")); } } const a = new A(); let n = 0; a.addEventListener("go", () => n++); a.go(); return n;`,
    constants: [`return [Event.NONE, Event.AT_TARGET, new Event("x").BUBBLING_PHASE];`, [0, 2, 3]],
    "Event needs a type": `return caught(() => new Event());`,
    "the global scope listens": [
      `let seen; const f = (e) => { seen = e.message; e.preventDefault(); }; addEventListener("error", f); reportError(new RangeError("boo")); removeEventListener("error", f); return seen;`,
      "Uncaught RangeError: boo",
    ],
    onerror: [
      `let seen; self.onerror = (e) => { seen = e.error.message; e.preventDefault(); }; reportError(new Error("boo")); self.onerror = null; return [seen, self.onerror];`,
      ["boo", null],
    ],
  });
});

describe("AbortSignal", () => {
  conformance({
    "abort with and without a reason": `const a = new AbortController(); a.abort(); const b = new AbortController(); b.abort("r"); return [a.signal.reason.name, a.signal.aborted, b.signal.reason];`,
    "listeners and onabort": `const c = new AbortController(); const seen = []; c.signal.onabort = (e) => seen.push(e.type); c.signal.addEventListener("abort", () => seen.push("l")); c.abort(); c.abort(); return seen;`,
    throwIfAborted: `return [await caught(() => AbortSignal.abort(new RangeError()).throwIfAborted()), new AbortController().signal.throwIfAborted()];`,
    timeout: `const s = AbortSignal.timeout(5); await new Promise((r) => s.addEventListener("abort", r)); return [s.reason.name, s.reason.code];`,
    any: `const a = new AbortController(); const s = AbortSignal.any([a.signal, AbortSignal.timeout(60000)]); const before = s.aborted; a.abort("why"); return [before, s.aborted, s.reason, AbortSignal.any([AbortSignal.abort(1)]).reason];`,
    "illegal constructor": `return caught(() => new AbortSignal());`,
    "bad timeouts": [
      `return [await caught(() => AbortSignal.timeout(-1)), await caught(() => AbortSignal.timeout("x"))];`,
      ["TypeError", "TypeError"],
    ],
  });
});

describe("DOMException", () => {
  conformance({
    "name, message and code": `const e = new DOMException("m", "AbortError"); return [e.name, e.message, e.code, e instanceof Error, e instanceof DOMException, String(e), Object.prototype.toString.call(e)];`,
    defaults: `const e = new DOMException(); return [e.name, e.message, e.code];`,
    constants: `return [DOMException.ABORT_ERR, DOMException.DATA_CLONE_ERR, DOMException.NOT_FOUND_ERR, DOMException.INVALID_STATE_ERR, new DOMException().TIMEOUT_ERR, DOMException.URL_MISMATCH_ERR];`,
    cause: `return new DOMException("m", { name: "DataError", cause: 5 }).cause;`,
    "is an error to V8": `return Error.isError(new DOMException());`,
  });
});

describe("timers and tasks", () => {
  conformance({
    order: `const seen = []; setTimeout(() => seen.push("timer"), 0); queueMicrotask(() => seen.push("micro")); seen.push("sync"); await later(20); return seen;`,
    arguments: `return new Promise((r) => setTimeout((a, b) => r([a, b]), 1, 1, 2));`,
    clearTimeout: `let n = 0; const t = setTimeout(() => n++, 5); clearTimeout(t); clearTimeout(undefined); clearTimeout(9999999); await later(20); return n;`,
    "intervals repeat until cleared": `let n = 0; await new Promise((r) => { const t = setInterval(() => { if (++n === 3) { clearInterval(t); r(); } }, 1); }); await later(10); return n;`,
    "text is never run": [
      `return [await caught(() => setTimeout("1")), await caught(() => setInterval("1", 5))];`,
      ["TypeError", "TypeError"],
    ],
    "queueMicrotask needs a function": `return caught(() => queueMicrotask(5));`,
  });
});

describe("MessageChannel", () => {
  conformance({
    "messages are clones and arrive later": `const { port1, port2 } = new MessageChannel(); const got = new Promise((r) => (port2.onmessage = (e) => r(e.data))); const m = { a: [1] }; port1.postMessage(m); m.a.push(2); const data = await got; port1.close(); return data;`,
    "listeners need start": `const { port1, port2 } = new MessageChannel(); const got = new Promise((r) => port2.addEventListener("message", (e) => r(e.data))); port1.postMessage(5); port2.start(); const data = await got; port1.close(); return data;`,
    order: `const { port1, port2 } = new MessageChannel(); const seen = []; await new Promise((r) => { port2.onmessage = (e) => { seen.push(e.data); if (seen.length === 3) r(); }; for (const x of [1, 2, 3]) port1.postMessage(x); }); port1.close(); return seen;`,
    "ports travel": `const a = new MessageChannel(); const b = new MessageChannel(); const got = new Promise((r) => (b.port2.onmessage = (e) => r(e.data))); a.port2.onmessage = (e) => e.ports[0].postMessage("via"); a.port1.postMessage(null, [b.port1]); const data = await got; a.port1.close(); b.port2.close(); return data;`,
    "what cannot be cloned throws": `return caught(() => new MessageChannel().port1.postMessage(() => {}));`,
    MessageEvent: [
      `const e = new MessageEvent("message", { data: 1, origin: "o" }); return [e.data, e.origin, e.ports, e.source, e.lastEventId];`,
      [1, "o", [], null, ""],
    ],
  });
});

describe("performance and navigator", () => {
  conformance({
    "now is a whole, growing number": [
      `const a = performance.now(); await later(5); const b = performance.now(); return [b > a, Number.isInteger(a), Number.isInteger(b)];`,
      [true, true, true],
    ],
    "timeOrigin and now make the time": [`return Math.abs(performance.timeOrigin + performance.now() - Date.now()) < 1000;`, true],
    "marks and measures": [
      `performance.mark("a", { startTime: 5 }); performance.mark("b", { startTime: 9, detail: { x: 1 } }); const m = performance.measure("m", "a", "b"); return [m.duration, performance.getEntriesByType("mark").length, performance.getEntriesByName("b")[0].detail, await caught(() => performance.measure("m", "nope"))];`,
      [4, 2, { x: 1 }, "SyntaxError"],
    ],
    userAgent: [`return [navigator.userAgent, Object.prototype.toString.call(navigator)];`, ["Kapstone", "[object Navigator]"]],
  });
});
