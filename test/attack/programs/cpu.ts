import type { Attack } from "../attack.ts";

const cpu = "cpu-exceeded";

/** Programs that never give the processor back. */
export const cpuAttacks: Attack[] = [
  { name: "endless loop", program: "() => { for (;;); }", outcome: cpu },
  {
    name: "endless loop that catches everything",
    program: "() => { for (;;) { try { for (;;); } catch {} finally { continue; } } }",
    outcome: cpu,
  },
  {
    name: "endless loop at the top of the module",
    top: "for (;;);",
    breaksItself: true,
    program: "() => new Response()",
    outcome: cpu,
  },
  {
    name: "endless loop in an async generator",
    program: "async () => { async function* forever() { for (;;) yield 1; } for await (const each of forever()); }",
    outcome: cpu,
  },
  { name: "microtask flood by await", program: "async () => { for (;;) await null; }", outcome: cpu },
  {
    name: "microtask flood by then",
    program: "() => { const again = () => Promise.resolve().then(again); return again(); }",
    outcome: [cpu, "memory-exceeded"], // each promise waits for the next one: whichever limit it meets first
  },
  {
    name: "queueMicrotask flood",
    program: "() => { const again = () => queueMicrotask(again); again(); return new Promise(() => {}); }",
    outcome: cpu,
  },
  {
    name: "microtask flood in many runs' names by setTimeout",
    program: "() => new Promise(() => setTimeout(async () => { for (;;) await null; }, 1))",
    outcome: cpu,
  },
  {
    name: "timer flood",
    program: "() => { const again = () => { for (let i = 0; i < 20; i++) setTimeout(again, 0); }; again(); return new Promise(() => {}); }",
    outcome: ["error", cpu],
  },
  {
    name: "200,000 intervals",
    program: "() => { for (let i = 0; i < 200_000; i++) setInterval(() => {}, 1); return new Promise(() => {}); }",
    outcome: ["error", cpu],
    // The answer to the error may be out before the time is up.
    status: [500, 503],
  },
  {
    name: "slow drip: a timer that burns 20 ms, again and again",
    program: "() => { setInterval(() => { const end = Date.now() + 20; while (Date.now() < end); }, 1); return new Promise(() => {}); }",
    outcome: cpu,
  },
  { name: "catastrophic regular expression", program: '() => new Response(String(/^(a+)+$/.test("a".repeat(60) + "b")))', outcome: cpu },
  {
    name: "catastrophic regular expression in replace",
    program: '() => new Response("x".repeat(50_000).replace(/(x+x+)+y/g, ""))',
    outcome: cpu,
  },
  { name: "sort with an endless comparator", program: "() => { [3, 1, 2].sort(() => { for (;;); }); }", outcome: cpu },
  {
    name: "sort of a huge array with a slow comparator",
    program:
      "() => { new Array(5_000_000).fill(0).map((_, i) => -i).sort((a, b) => { for (let i = 0; i < 100; i++) Math.sin(i); return a - b; }); }",
    outcome: [cpu, "memory-exceeded"],
  },
  { name: "getter that never returns, read by Response", program: "() => new Response('x', { get status() { for (;;); } })", outcome: cpu },
  { name: "toString that never returns, read by URL", program: "() => new URL({ toString() { for (;;); } })", outcome: cpu },
  {
    name: "iterator that never ends, read by Headers",
    program: "() => new Headers({ *[Symbol.iterator]() { for (;;) yield ['a', 'b']; } })",
    outcome: [cpu, "memory-exceeded"],
  },
  { name: "JSON.stringify with an endless toJSON", program: "() => Response.json({ toJSON() { for (;;); } })", outcome: cpu },
  {
    name: "deep recursion by Proxy traps",
    program: "() => { let p = {}; for (let i = 0; i < 100_000; i++) p = new Proxy(p, {}); return new Response(String(p.x)); }",
    outcome: "error",
  },
  {
    name: "BigInt exponentiation",
    program: "() => { let x = 3n ** 1_000_000n; for (;;) x = (x * x) % (1n << 4_000_000n); }",
    outcome: [cpu, "memory-exceeded"],
  },
  {
    name: "WebAssembly loop",
    program:
      "() => { const wasm = new Uint8Array([0,97,115,109,1,0,0,0,1,4,1,96,0,0,3,2,1,0,7,5,1,1,102,0,0,10,9,1,7,0,3,64,12,0,11,11]); new WebAssembly.Instance(new WebAssembly.Module(wasm)).exports.f(); }",
    outcome: cpu,
  },
  {
    name: "Array.prototype.includes on a billion holes",
    program: "() => { const a = []; a.length = 4_294_967_295; return new Response(String(a.indexOf(1) + a.join('').length)); }",
    outcome: [cpu, "error", "memory-exceeded"],
  },
  {
    name: "padding and repeating without end",
    program: "() => { for (;;) 'x'.repeat(1_000_000).split('').reverse().join(''); }",
    outcome: [cpu, "memory-exceeded"],
  },
  {
    name: "digest of many megabytes again and again",
    program: "async () => { const bytes = new Uint8Array(8_000_000); for (;;) await crypto.subtle.digest('SHA-512', bytes); }",
    outcome: [cpu, "timeout"],
  },
  {
    name: "PBKDF2 with two million iterations, 64 at once",
    program:
      "async () => { const key = await crypto.subtle.importKey('raw', new Uint8Array(8), 'PBKDF2', false, ['deriveBits']); for (;;) await Promise.all(Array.from({ length: 64 }, () => crypto.subtle.deriveBits({ name: 'PBKDF2', hash: 'SHA-512', salt: new Uint8Array(8), iterations: 2_000_000 }, key, 256))); }",
    outcome: [cpu, "timeout"],
  },
];
