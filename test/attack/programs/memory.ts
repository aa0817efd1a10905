import type { Attack } from "../attack.ts";

/** Which of the two limits is met first depends on the machine: either ends the program. */
const spent = ["memory-exceeded", "cpu-exceeded"] as const;
/** V8 itself refuses a single thing that is too large with a RangeError, which is the program's own. */
const spentOrRefused = [...spent, "error"] as const;

/** Programs that take all the memory they can get. */
export const memoryAttacks: Attack[] = [
  {
    name: "arrays without end",
    program: "() => { const kept = []; for (;;) kept.push(new Array(100_000).fill(1.5)); }",
    outcome: spent,
  },
  { name: "one array that grows", program: "() => { const kept = []; for (;;) kept.push({ at: kept.length }); }", outcome: spent },
  {
    name: "string that doubles",
    program: "() => { let s = 'x'; for (;;) { s += s; s.charCodeAt(s.length - 1); } }",
    outcome: spentOrRefused,
  },
  {
    name: "strings without end",
    program: "() => { const kept = []; for (let i = 0; ; i++) kept.push(('x' + i).repeat(10_000) + i); }",
    outcome: spentOrRefused,
  },
  {
    name: "Map without end",
    program: "() => { const kept = new Map(); for (let i = 0; ; i++) kept.set(i, { i }); }",
    outcome: spentOrRefused,
  },
  {
    name: "typed arrays, touched",
    program: "() => { const kept = []; for (;;) kept.push(new Uint8Array(8_000_000).fill(1)); }",
    outcome: spentOrRefused,
  },
  {
    name: "ArrayBuffers, untouched",
    program: "() => { const kept = []; for (;;) kept.push(new ArrayBuffer(64_000_000)); }",
    outcome: spentOrRefused,
  },
  { name: "one ArrayBuffer of 8 GB", program: "() => new Response(new ArrayBuffer(8_000_000_000))", outcome: spentOrRefused },
  {
    name: "resizable ArrayBuffer",
    program:
      "() => { const kept = []; for (;;) { const b = new ArrayBuffer(8, { maxByteLength: 500_000_000 }); b.resize(500_000_000); new Uint8Array(b).fill(1); kept.push(b); } }",
    outcome: spentOrRefused,
  },
  {
    name: "WebAssembly memory",
    program:
      "() => { const kept = []; for (;;) { const m = new WebAssembly.Memory({ initial: 1000, maximum: 65536 }); new Uint8Array(m.buffer).fill(1); kept.push(m); } }",
    outcome: spentOrRefused,
  },
  {
    name: "WebAssembly tables",
    program: "() => { const kept = []; for (;;) kept.push(new WebAssembly.Table({ element: 'anyfunc', initial: 1_000_000 })); }",
    outcome: spentOrRefused,
  },
  {
    name: "JSON.parse of five million arrays",
    program: "() => { const kept = []; for (;;) kept.push(JSON.parse('[' + '[],'.repeat(5_000_000) + '1]')); }",
    outcome: spent,
  },
  { name: "JSON.parse of deep nesting", program: "() => JSON.parse('['.repeat(10_000_000))", outcome: spentOrRefused },
  {
    name: "JSON.stringify of shared structure",
    program: "() => { let o = { s: 'x'.repeat(1000) }; for (let i = 0; i < 40; i++) o = { a: o, b: o }; return Response.json(o); }",
    outcome: spentOrRefused,
  },
  { name: "BigInt squaring", program: "() => { let x = 3n ** 100_000n; for (;;) x = x * x; }", outcome: spentOrRefused },
  {
    name: "BigInt to text",
    program: "() => { const x = (1n << 20_000_000n) - 1n; const kept = []; for (;;) kept.push(x.toString()); }",
    outcome: spentOrRefused,
  },
  {
    name: "regular expression results",
    program: "() => { const kept = []; for (;;) kept.push([...'ab'.repeat(500_000).matchAll(/a(b)/g)]); }",
    outcome: spentOrRefused,
  },
  { name: "recursion without end", program: "() => { const down = () => down() + 1; return down(); }", outcome: "error" },
  {
    name: "recursion that catches its own end",
    program: "() => { const down = () => { try { down(); } finally { down(); } }; down(); }",
    outcome: ["error", "cpu-exceeded"],
  },
  {
    name: "closures without end",
    program:
      "() => { let next = () => 0; for (;;) { const last = next; const load = new Array(100).fill(1); next = () => last() + load[0]; } }",
    outcome: spent,
  },
  {
    name: "structuredClone of a growing graph",
    program: "() => { let g = { a: new Array(1000).fill('x') }; for (;;) g = { one: structuredClone(g), two: g }; }",
    outcome: spentOrRefused,
  },
  {
    name: "promises that never settle",
    program: "async () => { const kept = []; for (;;) kept.push(new Promise(() => {}).then(() => kept)); }",
    outcome: spentOrRefused,
  },
  {
    name: "Blob of blobs",
    program: "() => { let b = new Blob(['x'.repeat(1_000_000)]); for (;;) b = new Blob([b, b]); }",
    outcome: spentOrRefused,
  },
  {
    name: "TextEncoder without end",
    program: "() => { const kept = []; const e = new TextEncoder(); for (;;) kept.push(e.encode('ü'.repeat(4_000_000))); }",
    outcome: spentOrRefused,
  },
  {
    name: "getRandomValues without end",
    program: "() => { const kept = []; for (;;) kept.push(crypto.getRandomValues(new Uint8Array(65_536))); }",
    outcome: spentOrRefused,
  },
  {
    name: "stream that queues without end",
    program:
      "() => { let held; new ReadableStream({ start(c) { held = c; } }); for (;;) held.enqueue(new Uint8Array(1_000_000).fill(1)); }",
    outcome: spentOrRefused,
  },
  {
    name: "decompression bomb",
    program:
      "async () => { const squeeze = async (bytes, Kind) => new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new Kind('gzip'))).arrayBuffer()); const bomb = await squeeze(new Uint8Array(20_000_000), CompressionStream); const kept = []; for (;;) kept.push(await squeeze(bomb, DecompressionStream)); }",
    outcome: [...spentOrRefused, "timeout"],
  },
  {
    name: "memory in many runs' timers",
    program: "() => { const kept = []; setInterval(() => kept.push(new Array(1_000_000).fill(0.5)), 1); return new Promise(() => {}); }",
    outcome: [...spent, "timeout"],
  },
  {
    name: "memory taken at the top of the module",
    top: "const kept = []; for (;;) kept.push(new Array(100_000).fill(2.5));",
    breaksItself: true,
    program: "() => new Response('never')",
    outcome: spent,
  },
];
